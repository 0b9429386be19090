"""Prefill and decode apart and together as measured points: what is started for each, and at which rates."""

from collections import defaultdict

import pytest

from engine.serving.proxy_settings import ProxySettings
from engine.serving.settings import EngineSettings, flags, parser_of, part
from figures.disaggregation import accelerators
from harness.assembly.effective import engine_processes, engine_settings, proxy_settings
from harness.assembly.point import read_point
from harness.assembly.settings import PointSettings
from harness.experiments.cells import expand, read_cells
from harness.experiments.compose import outside_hydra


def points(*words: str) -> list[PointSettings]:
    with outside_hydra() as make:
        job = make(["experiment=pd_disaggregated", *words])
        return [read_point(job.compose(axes)) for axes in expand(read_cells(job.config["cells"]))]


def test_all_systems_meet_the_same_rates_per_accelerator() -> None:
    rates: dict[str, set[float]] = defaultdict(set)
    for point in points("device=cpu"):
        assert point.workload.output_tokens == "trace"
        assert engine_processes(point) == accelerators(point.system.name)
        rates[point.system.name].add(point.load.rate_scale / accelerators(point.system.name))
    assert set(rates) == {"flowprefill_1p1d", "distserve_1p1d", "flowprefill", "flowprefill_tbt", "distserve"}
    assert len({frozenset(each) for each in rates.values()}) == 1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_proxy_s_flags_give_its_settings(device: str) -> None:
    model = "llama3_8b" if device == "cuda" else "cpu_demo"
    apart = [point for point in points(f"device={device}", f"model={model}") if point.system.prefill_instances]
    parser = parser_of("engine.serving.proxy", "", {"proxy": ProxySettings, "engine": EngineSettings})
    for point in apart:
        proxy, engine = proxy_settings(point), engine_settings(point, "profile.json", None)
        assert proxy is not None
        given = vars(parser.parse_args([*flags(proxy), *flags(engine)]))
        assert part(ProxySettings, given) == proxy == ProxySettings(1, 1, "round_robin")
        assert part(EngineSettings, given) == engine
        assert (engine.device, engine.tensor_parallel) == (device, 1)

"""What the Makefile runs on a machine with a CUDA device, as far as it goes without one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.model.catalogue import load_shape
from engine.serving.settings import flags, parse_command_line
from engine.torch_backend.settings import ExecutorSettings
from harness.assembly.effective import engine_settings
from harness.assembly.point import read_point
from harness.assembly.reading import SettingsError
from harness.assembly.rival import launch_settings
from harness.assembly.settings import PointSettings
from harness.experiments import pause_rounds
from harness.experiments.cells import expand, read_cells, without_user_axes
from harness.experiments.compose import Job, outside_hydra
from harness.experiments.machine import Cores, share_cores
from harness.experiments.rival_server import LAUNCHES, model_folder

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
SMALLEST_GPU_BYTES = 80e9


def overrides() -> list[str]:
    """What the Makefile adds where torch finds a CUDA device."""
    found = re.search(r'print\("(model=\S+ device=\S+)" if torch.cuda.is_available\(\)', MAKEFILE)
    assert found is not None
    return found[1].split()


def experiments(target: str) -> list[str]:
    """Of a target, those that run on the device."""
    recipe = re.search(rf"\n{target}:.*?\n\n", MAKEFILE, re.DOTALL)
    assert recipe is not None
    loops = re.findall(r"for name in ([\w ]+); do \$\(RUN\) experiment=\$\$name \$\(GPU\)", recipe[0])
    return [
        *re.findall(r"experiment=(\w+)[^;\n]*\$\(GPU\)", recipe[0]),
        *(name for loop in loops for name in loop.split()),
    ]


def points(job: Job) -> list[PointSettings]:
    cells = without_user_axes(read_cells(job.config["cells"]), job.user)
    return [read_point(job.compose(axes)) for axes in expand(cells)]


TARGETS = ("reproduce", "reproduce-full", "real-servers")


@pytest.fixture(scope="module", name="composed")
def _composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[PointSettings]]]:
    trace = tmp_path_factory.mktemp("traces") / "trace"  # of experiments on public ones, which are fetched
    trace.write_text("")
    found: dict[str, list[PointSettings]] = {}
    with outside_hydra() as make:
        for name in (name for target in TARGETS for name in experiments(target)):
            path = [f"workload.path={trace}"] if name in ("azure_code", "mooncake") else []
            found[name] = points(make([f"experiment={name}", *overrides(), *path]))
        yield found


def of_backend(composed: dict[str, list[PointSettings]], *backends: str) -> list[PointSettings]:
    return [point for found in composed.values() for point in found if point.system.backend in backends]


def test_every_target_has_measured_points_on_a_gpu() -> None:
    assert experiments("reproduce") == ["reproduce", "granularity", "launch_bounds", "real_servers_short"]
    full = ["goodput_vs_rate", "granularity", "slo_scale", "ablation", "azure_code", "mooncake"]
    assert experiments("reproduce-full") == full
    assert experiments("real-servers") == ["real_servers"]
    assert overrides() == ["model=llama3_8b", "device=cuda"]


def test_every_engine_point_is_a_server_that_can_be_started(composed: dict[str, list[PointSettings]]) -> None:
    found = of_backend(composed, "engine")
    assert len(found) > 20
    for point in found:
        assert share_cores(point.device) == Cores(None, None)  # the engine's core is not what limits it
        settings, _ = parse_command_line(flags(engine_settings(point, "profile.json", None)))
        assert (settings.model, settings.device, settings.dtype) == ("llama3_8b", "cuda", "bfloat16")
        assert settings.dummy_weights
        assert (settings.max_context_tokens, settings.token_bound) == (32768, 2048)


def test_weights_kv_and_activations_fit_the_paper_s_gpu(composed: dict[str, list[PointSettings]]) -> None:
    shape = load_shape("llama3_8b")
    for point in of_backend(composed, "engine"):
        settings = engine_settings(point, "", None)
        weights = 2 * 8.03e9
        kv = settings.kv_blocks * settings.block_tokens * 2 * shape.layers * shape.kv_heads * shape.head_dim * 2
        assert weights + kv + settings.activation_bytes < SMALLEST_GPU_BYTES


def test_every_pause_study_is_an_executor_that_can_be_made(composed: dict[str, list[PointSettings]]) -> None:
    made = [pause_rounds._executor(point, 16384) for point in composed["granularity"]]
    assert {str(settings.granularity) for settings in made} == {"none", "layer", "half_layer", "operator", "tile"}
    assert all(settings.kv_blocks * settings.block_tokens >= 16384 for settings in made)
    assert {settings.launch_bound_ns for settings in made} == {ExecutorSettings().launch_bound_ns}


def test_the_gate_is_studied_beside_synchronising_at_each_operator(composed: dict[str, list[PointSettings]]) -> None:
    study = composed["launch_bounds"]
    made = [pause_rounds._executor(point, 16384) for point in study]
    bounds_ns = (0, 100_000, 500_000, 3_000_000)
    assert [(str(settings.granularity), settings.launch_bound_ns) for settings in made] == [
        (granularity, bound_ns) for granularity in ("operator", "layer") for bound_ns in bounds_ns
    ]
    assert study[0].system.series == "FlowPrefill (operator, 0 us ahead)"
    assert len({point.system.series for point in study}) == len(study)


def test_a_launch_bound_reaches_the_server_and_is_refused_where_nothing_is_launched_ahead() -> None:
    given = ["+system.launch_bound_us=0", "system=flowprefill"]
    with outside_hydra() as make:
        point = read_point(make([*overrides(), *given]).compose({}))
        with pytest.raises(SettingsError, match=r"system\.launch_bound_us is of a CUDA device; it .* device=cpu"):
            read_point(make(["device=cpu", "+system.launch_bound_us=0"]).compose({}))
    settings, _ = parse_command_line(flags(engine_settings(point, "", None)))
    assert settings.launch_bound_us == 0


def test_rivals_run_on_cuda_and_need_no_weights(
    composed: dict[str, list[PointSettings]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[list[str]] = []

    def write(command: list[str], **_: Any) -> Any:
        made.append(command)
        return type("Done", (), {"returncode": 0})()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.experiments.rival_server.subprocess.run", write)
    found = of_backend(composed, "vllm", "sglang")
    assert {point.system.name for point in found} == {"vllm", "vllm_priority", "sglang", "sglang_priority"}
    for point in found:
        settings = launch_settings(point, model_folder(point))
        assert (settings.device, settings.dtype, settings.dummy_weights) == ("cuda", "bfloat16", True)
        assert settings.model == "outputs/checkpoints/llama3_8b-no-weights"
        arguments = LAUNCHES[point.system.backend](settings).arguments  # type: ignore[index]
        assert arguments[arguments.index("--load-format") + 1] == "dummy"
    assert all("--no-weights" in command for command in made)

"""Every experiment file composes, and a mistake on the command line is one sentence."""

import dataclasses
import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra

from harness.assembly.point import read_point
from harness.assembly.reading import SettingsError
from harness.experiments.cells import expand, read_cells, without_user_axes
from harness.experiments.compose import Job, main, options, outside_hydra
from harness.experiments.prepare import Preparer
from harness.measurement.goodput_table import GROUP_COLUMNS, SERIES_COLUMNS

SIMULATED = [name for name in options("experiment") if name.startswith("sim_") or name == "reference_check"]
PLACES = ((), ("model=llama3_8b", "device=cuda"))


@pytest.fixture(scope="module", name="job")
def _job() -> Iterator[Any]:
    with outside_hydra() as make:
        yield make


def points(job: Job) -> list[dict[str, Any]]:
    cells = without_user_axes(read_cells(job.config.get("cells")), job.user)
    return [job.compose(axes) for axes in expand(cells)]


@pytest.mark.parametrize("place", PLACES, ids=["here", "gpu"])
@pytest.mark.parametrize("name", [name for name in options("experiment") if name not in SIMULATED])
def test_every_experiment_composes(job: Any, name: str, place: Sequence[str], tmp_path: Any) -> None:
    overrides = [f"experiment={name}", *place]
    if name in ("azure_code", "mooncake", "your_server"):
        trace = tmp_path / "trace"
        trace.write_text("")
        overrides.append(f"workload.path={trace}")
    if name == "your_server":
        overrides.append("system.base_url=http://127.0.0.1:8000")
    composed = job(overrides)
    assert composed.config["kind"] in ("rate_points", "pauses", "search", "real_servers")
    settings = [read_point(config) for config in points(composed)]
    assert settings
    assert len({repr(point) for point in settings}) == len(settings)
    assert all(point.experiment == name for point in settings)
    if place:
        assert {(p.model.name, p.device.kind, p.model.length_scale) for p in settings} == {("llama3_8b", "cuda", 1.0)}


@pytest.mark.parametrize("name", SIMULATED)
def test_every_simulated_experiment_composes_and_no_series_mixes_settings(job: Any, name: str, tmp_path: Any) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("order,type,input_length,output_length\n0,text,793,532\n1,image,380,76\n")
    path = [f"workload.path={trace}"] if name == "reference_check" else []
    composed = job([f"experiment={name}", "load.seed=0", *path])
    cells = read_cells(composed.config["cells"])
    recorded = [cell for cell in cells if cell.get("workload.arrivals") == ("recorded",)]
    if name not in ("sim_smoke", "reference_check"):
        assert all(len(set(cell["load.seed"])) >= 20 for cell in cells if cell not in recorded)
    axes = expand(without_user_axes(cells, composed.user))
    ready = Preparer(lambda _: None, composed.user).prepare_all(composed, axes)
    assert len(ready) == len(axes)
    assert {(one.settings.experiment, one.settings.device.simulated) for one in ready} == {(name, True)}
    rows = [dataclasses.asdict(one.facts(1.0)) for one in ready]
    by_series: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for row in rows:
        group = tuple(str(row[column]) for column in (*GROUP_COLUMNS, "series"))
        by_series.setdefault(group, set()).add(tuple(str(row[column]) for column in SERIES_COLUMNS))
    assert all(len(settings) == 1 for settings in by_series.values())
    # Every row of a series at a rate is a seed of its own: here there is one seed.
    assert len({(*(row[column] for column in (*GROUP_COLUMNS, "series", "rate_scale")),) for row in rows}) == len(rows)
    reference = composed.config.get("reference")
    assert reference is None or reference in {row["series"] for row in rows}


def test_the_default_experiment_is_goodput_vs_rate(job: Any) -> None:
    assert job([]).config["experiment"] == "goodput_vs_rate"


def test_the_sweep_of_the_readme_gives_exactly_its_points_per_seed(job: Any) -> None:
    found = [
        (p.system.chunk_tokens, p.load.rate_scale, p.load.seed)
        for chunk in (256, 512, 2048)
        for rate in (1, 2)
        for p in map(
            read_point,
            points(job(["system=chunked_prefill", f"system.chunk_tokens={chunk}", f"load.rate_scale={rate}"])),
        )
    ]
    assert sorted(found) == sorted((c, float(r), s) for c in (256, 512, 2048) for r in (1, 2) for s in range(5))


def test_what_the_user_typed_wins_over_the_experiment_file(job: Any) -> None:
    config = job(["experiment=azure_code", "workload=sample", "slo=by_task", "workload.arrivals=gamma"]).config
    assert (config["workload"]["name"], config["slo"]["rule"]) == ("sample", "by_task")
    assert config["workload"]["arrivals"] == "gamma"


@pytest.mark.parametrize("name", ["azure_code", "azure_conv", "azure_2024", "mooncake", "burstgpt"])
def test_a_trace_without_classes_brings_slos_by_length(job: Any, name: str) -> None:
    assert job([f"workload={name}"]).config["slo"]["rule"] == "by_length"
    assert job([f"workload={name}", "slo=uniform"]).config["slo"]["rule"] == "uniform"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["system=flowprefil"], "system has no option 'flowprefil'; it has: "),
        (["experiment=nope"], "experiment has no option 'nope'; it has: ablation, "),
        (["system.chunk_tokns=3"], "unknown setting system.chunk_tokns"),
        (["system=flowprefill", "system.chunk_tokens=3"], "unknown setting system.chunk_tokens"),
        (["nosuch=1"], "unknown setting nosuch"),
        (["load.rate_scale=["], "load.rate_scale=["),
        (["system=3"], "system has no option 3; it has: "),
        (["experiment=smoke", "experiment=ablation"], "experiment is given twice: experiment=smoke and experiment=abl"),
    ],
)
def test_a_mistyped_override_is_one_sentence(job: Any, overrides: list[str], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        job(overrides)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_axis_of_a_cell_that_does_not_exist_is_named(job: Any) -> None:
    with pytest.raises(SettingsError, match=r"unknown setting system\.chnk"):
        job([]).compose({"system": "chunked_prefill", "system.chnk": 3})


def test_an_added_key_reaches_the_settings_and_is_refused_there(job: Any) -> None:
    with pytest.raises(SettingsError, match=r"unknown setting system\.foo"):
        read_point(job(["+system.foo=3", "device=cpu"]).compose({}))


def test_the_label_of_a_series_follows_the_axes(job: Any) -> None:
    composed = job(["experiment=ablation"])
    point = read_point(composed.compose({"system": "flowprefill", "system.policy": "edf", "system.batching": "none"}))
    assert point.system.series == "edf, operator, none"


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (
            ["output.results=/a/\u00fc"],
            "cannot read 'output.results=/a/\u00fc'; odd characters need quotes within the shell's: "
            "\"output.results='/a/\u00fc'\"",
        ),
        (["=3"], "cannot read '=3': the name of a setting is missing before ="),
        (["system=distserve,3", "-m"], "system has no option 3; it has: "),
        (["experiment=nope"], "experiment has no option 'nope'"),
        (["hydra/launcher=nope"], "hydra/launcher has no option 'nope'; it has: ray_cluster, "),
        (["load.seed=0", "-m", "system=nope,distserve", "experiment=smoke"], "system has no option 'nope'"),
    ],
)
def test_the_command_line_is_one_sentence_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any, typed: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setattr("sys.argv", ["run.py", *typed])
    GlobalHydra.instance().clear()
    assert main(lambda _: 0) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert words in told
    assert told.count("\n") == 1


def test_a_launcher_whose_package_is_not_installed_is_told_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    if importlib.util.find_spec("submitit") is not None:
        pytest.skip("submitit's launcher is installed here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["run.py", "-m", "experiment=sim_smoke", "hydra/launcher=slurm"])
    GlobalHydra.instance().clear()
    assert main(lambda _: 0) == 2
    told = capsys.readouterr().err
    assert told == "error: hydra/launcher=slurm needs submitit_slurm, which `make env-sweeps` installs\n"

"""Names to loaders, options that do not fit, and the committed conf files."""

from pathlib import Path

import pytest
import yaml

from tests.workloads.conftest import REPOSITORY
from workloads.fetch import SOURCES, read_sources
from workloads.settings import WorkloadSettings
from workloads.slo import LengthBin, SLORule, SLOSettings, Target
from workloads.traces.catalogue import LOADERS, load_trace
from workloads.traces.errors import TraceError

CONF = REPOSITORY / "conf"
WORKLOADS = sorted(path.stem for path in (CONF / "workload").glob("*.yaml"))


def conf_workload(name):
    """A workload file over the defaults it names, as composition reads it. A trace without classes brings its SLOs."""
    own = yaml.safe_load((CONF / "workload" / f"{name}.yaml").read_text())
    defaults = own.pop("defaults")
    assert defaults[:2] == ["defaults/every_trace@_here_", "_self_"]
    assert defaults[2:] in ([], [{"override /slo@_global_.slo": "by_length"}])
    return {**yaml.safe_load((CONF / "workload" / "defaults" / "every_trace.yaml").read_text()), **own}


def conf_slo(name):
    raw = yaml.safe_load((CONF / "slo" / f"{name}.yaml").read_text())
    raw["tasks"] = {task: Target(**target) for task, target in raw.get("tasks", {}).items()}
    raw["bins"] = tuple(LengthBin(**length_bin) for length_bin in raw.get("bins", ()))
    raw["uniform"] = Target(**raw["uniform"]) if "uniform" in raw else None
    return SLOSettings(**raw)


def test_every_workload_the_readme_names_has_a_file():
    assert set(WORKLOADS) == {
        "sample", "sample_resampled", "synthetic", "azure_code", "azure_conv", "azure_2024", "mooncake", "qwen",
        "qwen_lengths", "burstgpt", "csv",
    }  # fmt: skip


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_file_holds_settings_its_loader_takes(name):
    settings = WorkloadSettings(**conf_workload(name))
    assert settings.name == name
    loader = LOADERS[settings.format]
    if loader.needs_path:
        with pytest.raises(TraceError, match=r"no trace file at|needs workload\.path"):
            load_trace(WorkloadSettings(**{**conf_workload(name), "path": settings.path and "absent/file.csv"}))
    else:
        trace, _ = load_trace(settings)
        assert trace.name == name


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in ("csv", "qwen_lengths")])
def test_a_default_path_is_where_make_traces_puts_the_file(name):
    path = conf_workload(name)["path"]
    if path is not None:
        assert path in {f"data/traces/{source.file}" for source in read_sources(SOURCES).values()}


def test_every_format_has_a_workload_file():
    assert {WorkloadSettings(**conf_workload(name)).format for name in WORKLOADS} == set(LOADERS)


def test_the_slo_files_hold_the_papers_slos():
    by_task = SLORule(conf_slo("by_task"))
    trace, _ = load_trace(WorkloadSettings("sample", "sample"))
    found = {by_task.objective(row).task: by_task.objective(row).slo for row in trace.rows}
    seconds = {task: (slo.ttft_ns / 1e9, slo.tbt_ns / 1e9) for task, slo in found.items()}
    assert seconds == {"text": (0.25, 0.1), "image": (0.5, 0.1), "search": (4.0, 0.2), "file": (6.0, 0.2)}
    lengths = SLORule(conf_slo("by_length"))
    assert {lengths.objective(row).task for row in trace.rows} == {"text", "search", "file"}
    assert SLORule(conf_slo("uniform")).objective(trace.rows[0]).slo.ttft_ns == 10**9


def test_c39_an_option_of_another_format_is_refused():
    with pytest.raises(TraceError, match="follow_up is not an option of format azure"):
        load_trace(WorkloadSettings("azure_code", "azure", "x.csv", follow_up="whole"))
    with pytest.raises(TraceError, match="columns is not an option of format mooncake"):
        load_trace(WorkloadSettings("mooncake", "mooncake", "x.jsonl", columns={"arrival": "a"}))
    with pytest.raises(TraceError, match="path is not an option of format sample"):
        load_trace(WorkloadSettings("sample", "sample", "mine.csv"))


def test_c39_conflicts_are_found_when_settings_are_read():
    with pytest.raises(ValueError, match="conflicts with arrivals=recorded"):
        WorkloadSettings("sample", "sample", arrival_cv=2.0)


def test_c41_a_workload_without_its_file_never_falls_back_to_another():
    with pytest.raises(TraceError, match=r"workload=csv needs workload.path"):
        load_trace(WorkloadSettings("csv", "csv"))
    with pytest.raises(TraceError, match=r"no trace file at no/such.csv"):
        load_trace(WorkloadSettings("azure_code", "azure", "no/such.csv"))


def test_an_own_csv_loads_by_name(write):
    path = write("own.csv", "when,prompt,kind\n0,5,chat\n2000,6,chat\n")
    columns = {"arrival": "when", "input": "prompt", "output": None, "class": "kind"}
    trace, _ = load_trace(WorkloadSettings("csv", "csv", str(path), columns=columns, arrival_unit="ms"))
    assert [(row.arrival_s, row.task) for row in trace.rows] == [(0.0, "chat"), (2.0, "chat")]


def test_no_workload_file_names_a_class_path():
    for path in [*(CONF / "workload").rglob("*.yaml"), *(CONF / "slo").glob("*.yaml")]:
        assert "_target_" not in Path(path).read_text()

"""What makes two points the same point, and what labels keep series apart."""

from pathlib import Path

import pytest

from harness.assembly.reading import SettingsError
from harness.experiments.profile_step import interpolate, read_profile
from tests.experiments.points import prepared, profile_text


@pytest.fixture(name="profile")
def _profile(tmp_path: Path) -> str:
    path = tmp_path / "profile.json"
    path.write_text(profile_text())
    return str(path)


def one(profile: str, *overrides: str) -> str:
    return prepared(profile, *overrides)[0].point


def test_the_same_settings_and_input_are_the_same_point(profile: str, tmp_path: Path) -> None:
    assert one(profile) == one(profile)
    elsewhere = tmp_path / "copy.json"
    elsewhere.write_bytes(Path(profile).read_bytes())
    assert one(str(elsewhere)) == one(profile)
    assert one(profile, "output.results=elsewhere") == one(profile)


def test_c56_a_changed_slo_is_another_point(profile: str) -> None:
    assert one(profile, "slo.scale=0.8") != one(profile)
    assert one(profile, "slo.tasks.text.ttft_s=0.26") != one(profile)


@pytest.mark.parametrize(
    "change",
    [
        "load.seed=1", "load.rate_scale=1.5", "system=edf", "system.alpha=0.2", "model.length_scale=0.0625",
        "workload.window_s=7", "protocol=steady_state", "protocol.min_arrivals_s=9", "load.request_timeout_s=5",
        "device.threads=2",
    ],
)  # fmt: skip
def test_c56_what_changes_a_measurement_changes_the_point(profile: str, change: str) -> None:
    assert one(profile, change) != one(profile)


def test_c56_another_input_is_another_point(profile: str, tmp_path: Path) -> None:
    slower = tmp_path / "slower.json"
    slower.write_text(profile_text(0.0002))
    assert one(str(slower)) != one(profile)
    trace = tmp_path / "trace.csv"
    csv = ("workload=csv", f"workload.path={trace}", "workload.columns.class=null", "slo=uniform")
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,100,1\n1,200,1\n")
    first = one(profile, *csv)
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,100,1\n1,201,1\n")
    assert one(profile, *csv) != first


def test_a_point_says_what_it_is(profile: str) -> None:
    point = one(profile, "system=chunked_prefill", "system.chunk_tokens=256", "load.rate_scale=1.5", "slo.scale=0.8")
    assert point.startswith("chunked_prefill_256_s_edf-r1.5-x0.8-s0-")


def test_the_speed_factor_stretches_by_the_profile(profile: str, tmp_path: Path) -> None:
    double = tmp_path / "double.json"
    double.write_text(profile_text(0.0002))
    (first,), (second,) = prepared(profile), prepared(str(double))
    assert second.given.slo_speed_factor == pytest.approx(2 * first.given.slo_speed_factor, rel=1e-6)
    assert first.device == "a test's device"


def test_labels_name_what_the_user_changed_below_a_column(profile: str) -> None:
    (ready,) = prepared(profile, "system.alpha=0.2", "system.granularity=layer", "slo=uniform", "load.seed=3")
    assert ready.labels["series"] == "FlowPrefill (layer), alpha=0.2"
    assert ready.labels["workload"] == "sample, slo=uniform, arrivals=poisson, window_s=6"
    assert ready.labels["protocol"] == "paper"


def test_two_traces_of_the_users_are_two_workloads(profile: str, tmp_path: Path) -> None:
    labels = []
    for name in ("mine.csv", "other.csv"):
        (tmp_path / name).write_text("arrival_s,input_tokens,output_tokens\n0,100,1\n1,200,1\n")
        own = ("workload=csv", f"workload.path={tmp_path / name}", "workload.columns.class=null", "slo=uniform")
        labels.append(prepared(profile, *own)[0].labels["workload"])
    assert [label.partition(",")[0] for label in labels] == ["mine.csv", "other.csv"]
    named = prepared(profile, *own, "workload.name=ours")[0].labels["workload"]
    assert named.startswith("ours, ")


def test_a_point_reads_its_profile_and_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    with pytest.raises(SettingsError, match="is not a profile file"):
        read_profile(bad)
    with pytest.raises(SettingsError, match="cannot read"):
        read_profile(tmp_path / "absent.json")


def test_interpolation_is_linear_between_and_beyond_the_measured_lengths() -> None:
    points = [(10, 1.0), (20, 2.0), (40, 6.0)]
    assert [interpolate(points, n) for n in (10, 15, 30, 50)] == [1.0, 1.5, 4.0, 8.0]
    assert interpolate(points, 1) == 1.0

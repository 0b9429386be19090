import dataclasses
import hashlib
import json
import threading
from pathlib import Path

import pytest

from engine.core.record import EngineReport, Status
from harness.measurement.store import (
    CLIENT_REPORT,
    MANIFEST,
    PROVENANCE,
    RECORDS,
    SETTINGS,
    Point,
    PointExistsError,
    PointState,
    StoreError,
    engine_report,
    point_state,
    read_point,
    records_from_csv,
    records_to_csv,
    write_point,
)
from harness.measurement.verdict import Verdict
from tests.measurement.records import client, facts, record

RECORDS_MADE = (
    record("a", cached_tokens=3, tbt_max_ms=5, output_estimated=True),
    record("b", ttft_ms=None, status=Status.FAILED, reason='HTTP 500: "no, never",\nreally\r\n'),
    record("c", ttft_ms=None, status=Status.UNSENT, slo_ms=None, task=""),
)
POINT = Point(
    facts=facts(),
    settings={"system": {"policy": "s_edf"}, "rates": [1, 2]},
    provenance={"commit": "abc", "started": "2026-01-01T00:00:00Z"},
    records=RECORDS_MADE,
    engine=EngineReport(decisions=3, blocking_ns=(5, 7)),
    client=client(3),
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write_point(tmp_path / "p0", POINT)
    assert read_point(tmp_path / "p0") == POINT
    assert point_state(tmp_path / "p0") is PointState.FINISHED
    assert names(tmp_path) == ["p0"]


def test_a_server_without_a_report_and_a_dead_one_are_kept(tmp_path: Path) -> None:
    point = dataclasses.replace(POINT, engine=None, server_alive=False)
    write_point(tmp_path / "p0", point)
    assert read_point(tmp_path / "p0") == point


def test_an_older_point_knows_nothing_of_the_servers_rest(tmp_path: Path) -> None:
    write_point(tmp_path / "p0", dataclasses.replace(POINT, server_at_rest=True))
    assert read_point(tmp_path / "p0").server_at_rest is True
    settings = json.loads((tmp_path / "p0" / SETTINGS).read_text())
    del settings["server_at_rest"]
    content = json.dumps(settings).encode()
    (tmp_path / "p0" / SETTINGS).write_bytes(content)
    manifest = json.loads((tmp_path / "p0" / MANIFEST).read_text())
    manifest[SETTINGS]["sha256"] = hashlib.sha256(content).hexdigest()
    (tmp_path / "p0" / MANIFEST).write_text(json.dumps(manifest))
    assert read_point(tmp_path / "p0").server_at_rest is None


def test_the_verdict_is_of_all_that_is_known() -> None:
    engine = EngineReport(completed_requests=4)
    point = dataclasses.replace(POINT, records=(record("a"), record("b"), record("c")), engine=None)
    assert point.judged().verdict is Verdict.VALID
    assert dataclasses.replace(point, engine=engine).judged().tripped[0].name == "warm_up_apart"
    assert dataclasses.replace(point, server_at_rest=False).judged().tripped[0].name == "server_at_rest"


def test_records_survive_commas_quotes_and_line_ends() -> None:
    assert records_from_csv(records_to_csv(RECORDS_MADE)) == RECORDS_MADE
    assert records_from_csv(records_to_csv(())) == ()


def test_same_facts_same_bytes(tmp_path: Path) -> None:
    write_point(tmp_path / "a", POINT)
    write_point(tmp_path / "b", POINT)
    for name in names(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a" / RECORDS).read_bytes()[4:8] == bytes(4), "the gzip header bears a time"


@pytest.mark.parametrize("name", [RECORDS, CLIENT_REPORT, SETTINGS, PROVENANCE, MANIFEST])
@pytest.mark.parametrize("how", ["truncated", "missing", "changed"])
def test_c56_a_truncated_or_stale_point_is_damaged_and_redone(tmp_path: Path, name: str, how: str) -> None:
    folder = tmp_path / "p0"
    write_point(folder, POINT)
    content = (folder / name).read_bytes()
    if how == "missing":
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content[: len(content) // 2] if how == "truncated" else content[:-2] + b"~\n")
    assert point_state(folder) is PointState.DAMAGED
    with pytest.raises(StoreError, match="damaged"):
        read_point(folder)
    write_point(folder, POINT)
    assert read_point(folder) == POINT
    assert names(tmp_path) == ["p0"]


def test_an_empty_folder_is_damaged_and_no_folder_is_absent(tmp_path: Path) -> None:
    (tmp_path / "p0").mkdir()
    assert point_state(tmp_path / "p0") is PointState.DAMAGED
    assert point_state(tmp_path / "p1") is PointState.ABSENT
    with pytest.raises(StoreError, match="absent"):
        read_point(tmp_path / "p1")


def test_c55_an_interrupted_point_is_kept_told_apart_and_redone(tmp_path: Path) -> None:
    partial = dataclasses.replace(POINT, client=client(3, interrupted=True))
    write_point(tmp_path / "p0", partial)
    assert point_state(tmp_path / "p0") is PointState.INTERRUPTED
    assert read_point(tmp_path / "p0") == partial
    write_point(tmp_path / "p0", POINT)
    assert point_state(tmp_path / "p0") is PointState.FINISHED


def test_a_finished_point_is_never_written_over(tmp_path: Path) -> None:
    write_point(tmp_path / "p0", POINT)
    with pytest.raises(PointExistsError, match="p0 is already finished"):
        write_point(tmp_path / "p0", dataclasses.replace(POINT, records=()))
    assert read_point(tmp_path / "p0") == POINT
    assert names(tmp_path) == ["p0"]


def test_c52_a_point_finished_while_another_run_replaces_its_damaged_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both runs see half a point; the first finishes it before the second moves it aside."""
    folder = tmp_path / "p0"
    folder.mkdir()
    seen: list[PointState] = []

    def seen_before_a_rival_finished(path: Path) -> PointState:
        state = point_state(path)
        seen.append(state)
        if len(seen) == 1:
            write_point(folder, POINT)
        return state

    monkeypatch.setattr("harness.measurement.store.point_state", seen_before_a_rival_finished)
    with pytest.raises(PointExistsError, match="finished by another run"):
        write_point(folder, dataclasses.replace(POINT, records=()))
    assert seen[0] is PointState.DAMAGED
    assert read_point(folder) == POINT
    assert names(tmp_path) == ["p0"]


def test_a_damaged_point_that_another_run_moved_away_first_is_simply_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "p0"
    folder.mkdir()
    seen: list[PointState] = []

    def seen_before_it_was_moved(path: Path) -> PointState:
        state = point_state(path)
        seen.append(state)
        if len(seen) == 1:
            folder.rmdir()
        return state

    monkeypatch.setattr("harness.measurement.store.point_state", seen_before_it_was_moved)
    write_point(folder, POINT)
    assert seen[0] is PointState.DAMAGED
    assert read_point(folder) == POINT
    assert names(tmp_path) == ["p0"]


def test_c52_of_many_writers_at_once_one_wins_and_nothing_is_torn(tmp_path: Path) -> None:
    outcomes: list[str] = []

    def write() -> None:
        try:
            write_point(tmp_path / "p0", POINT)
            outcomes.append("wrote")
        except PointExistsError:
            outcomes.append("lost")

    threads = [threading.Thread(target=write, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["lost"] * 7 + ["wrote"]
    assert read_point(tmp_path / "p0") == POINT
    assert names(tmp_path) == ["p0"]


def test_a_point_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_point(tmp_path / "p0", dataclasses.replace(POINT, settings={"alpha": float("nan")}))
    assert names(tmp_path) == []


def test_an_engine_report_is_read_strictly() -> None:
    data = json.loads(json.dumps(dataclasses.asdict(EngineReport(preemptions=2, blocking_ns=(1, 2)))))
    assert engine_report(data) == EngineReport(preemptions=2, blocking_ns=(1, 2))
    with pytest.raises(ValueError, match="unknown \\['speed'\\]"):
        engine_report({**data, "speed": 3})
    del data["kv_sent"], data["kv_received"]
    assert engine_report(data).kv_sent == 0, "of an engine that could not"
    del data["preemptions"]
    with pytest.raises(ValueError, match="missing \\['preemptions'\\]"):
        engine_report(data)

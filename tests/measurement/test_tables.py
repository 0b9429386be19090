import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.core.clock import NS_PER_MS, NS_PER_S
from engine.core.record import EngineReport, RequestRecord, Status
from harness.measurement.attainment import counted
from harness.measurement.table_file import TableError, read_table, table_path
from harness.measurement.tables import POINT_COLUMNS, class_column, merge_points, point_row, write_points
from harness.measurement.verdict import judge
from tests.measurement.records import client, facts, record

ASKED_FOR = {
    "experiment", "point", "series", "system", "policy", "granularity", "chunk_tokens", "batching", "backend",
    "source", "model", "device", "workload", "protocol", "length_scale", "slo_scale", "slo_speed_factor",
    "rate_scale", "rate_rps", "seed", "requests_due", "requests_ok", "requests_failed", "requests_rejected",
    "requests_unfinished", "attainment", "attainment_worst_class", "ttft_p50_s", "ttft_p99_s",
    "ttft_from_send_p99_s", "blocking_n", "blocking_mean_ms", "blocking_p50_ms", "blocking_p99_ms",
    "blocking_max_ms", "preemptions", "decisions", "prefill_tokens_per_s", "sender_lag_p99_ms", "verdict",
}  # fmt: skip

RECORDS = [
    record("a", ttft_ms=100, lag_ms=20),
    record("b", ttft_ms=300, lag_ms=20),
    record("c", task="file", slo_ms=6000, ttft_ms=None, status=Status.FAILED, reason="HTTP 500"),
    record("d", task="file", slo_ms=6000, ttft_ms=500),
]
ENGINE = EngineReport(
    decisions=8, other_decisions=2, preemptions=2, prefill_tokens=400, executed_ns=2 * NS_PER_S, scheduling_ns=50_000,
    blocking_ns=(1 * NS_PER_MS, 3 * NS_PER_MS),
)  # fmt: skip


def row_of(records: list[RequestRecord], engine: EngineReport | None = ENGINE, **settings: object) -> dict[str, object]:
    report = client(len(records), sender_lag_p99_ns=2 * NS_PER_MS)
    return point_row(facts(**settings), records, engine, report, judge(records, report))


def test_every_column_of_the_issue_is_there() -> None:
    assert set(POINT_COLUMNS) >= ASKED_FOR
    assert {"attainment_text", "n_text", "attainment_file", "n_file"} <= set(row_of(RECORDS))


def test_a_row_by_hand() -> None:
    row = row_of(RECORDS)
    expected = {
        "requests_due": 4, "requests_ok": 3, "requests_failed": 1, "requests_rejected": 0,
        "attainment": 0.5, "attainment_n": 4, "attainment_text": 0.5, "n_text": 2, "attainment_file": 0.5, "n_file": 2,
        "attainment_worst_class": 0.5, "worst_class": "file", "attainment_joint": None,
        "ttft_n": 3, "ttft_p50_s": 0.3, "ttft_p99_s": pytest.approx(0.496), "ttft_p99_few_samples": True,
        "blocking_n": 2, "blocking_mean_ms": 2.0, "blocking_max_ms": 3.0, "preemptions": 2, "decisions": 8,
        "scheduling_us_per_decision": 5.0, "prefill_tokens_per_s": 200.0, "executor_busy_share": 0.2,
        "sender_lag_p99_ms": 2.0, "verdict": "VALID", "verdict_reason": None,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert row["ttft_from_send_p99_s"] == pytest.approx(0.0 + 0.280 + (0.5 - 0.280) * 0.98)


def test_what_the_protocol_discards_is_due_and_counts_nowhere_else() -> None:
    late = record("e", ttft_ms=200, due_ms=3000)
    report = client(5)
    row = point_row(facts(), [*RECORDS, late], ENGINE, report, judge(RECORDS, report), discard_first_s=2.0)
    assert (row["requests_due"], row["attainment_n"], row["attainment"], row["ttft_n"]) == (5, 1, 1.0, 1)
    assert row["n_text"] == 1
    assert "n_file" not in row
    assert [r.request_id for r in counted([late, *RECORDS], 2.0)] == ["e"]
    assert counted([*RECORDS, late], 0.0) == (*RECORDS, late)
    assert counted([], 2.0) == ()


def test_statuses_add_up_to_the_due_requests() -> None:
    row = row_of([record(f"{s.value}{i}", status=s) for i, s in enumerate(Status)])
    assert sum(int(str(row[f"requests_{s.value}"])) for s in Status) == row["requests_due"] == len(Status)


def test_nothing_measured_stays_empty() -> None:
    row = row_of(RECORDS, engine=EngineReport())
    assert (row["blocking_n"], row["blocking_mean_ms"], row["prefill_tokens_per_s"]) == (0, None, None)
    without_report = row_of(RECORDS, engine=None)
    assert "preemptions" not in without_report
    nobody = row_of([record("x", ttft_ms=None, status=Status.FAILED)])
    assert (nobody["ttft_n"], nobody["ttft_p50_s"], nobody["attainment"]) == (0, None, 0.0)


def test_c48_few_samples_are_flagged_and_the_interval_stands_beside() -> None:
    few = row_of([record(f"r{i}") for i in range(20)])
    assert (few["ttft_n"], few["ttft_p99_few_samples"]) == (20, True)
    low, high = few["attainment_low"], few["attainment_high"]
    assert isinstance(low, float)
    assert (low, high) == (pytest.approx(0.8389, abs=1e-4), 1.0)
    assert row_of([record(f"r{i}") for i in range(100)])["ttft_p99_few_samples"] is False


def test_c50_the_cached_share_and_c38_other_prompt_lengths_are_recorded() -> None:
    told = [
        record("a", cached_tokens=25, server_prompt_tokens=100),
        record("b", cached_tokens=0, server_prompt_tokens=101),
        record("c"),
    ]
    row = row_of(told)
    assert (row["cached_tokens_share"], row["prompt_tokens_mismatched"]) == (0.125, 1)
    assert row_of(RECORDS)["cached_tokens_share"] is None


def test_class_names_make_columns() -> None:
    assert class_column("n", "To-Consumer Chat") == "n_to_consumer_chat"
    assert class_column("n", "") == "n_unnamed"
    with pytest.raises(TableError, match="rename the class"):
        row_of([record("a", task="a b"), record("b", task="a-b")])
    with pytest.raises(TableError, match="rename the class"):
        row_of([record("a", task="low")])


def test_same_rows_same_bytes_in_any_order(tmp_path: Path) -> None:
    rows = [row_of(RECORDS, point=f"p{i}", seed=i, rate_scale=rate) for i, rate in enumerate([10.0, 2.0, 0.5])]
    write_points(tmp_path / "a.csv", rows)
    write_points(tmp_path / "b.csv", rows[::-1])
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    written = read_table(tmp_path / "a.csv")
    assert [row["rate_scale"] for row in written] == ["0.5", "2", "10"]
    assert list(written[0])[: len(POINT_COLUMNS)] == list(POINT_COLUMNS)
    assert written[0]["chunk_tokens"] == ""


def test_a_packed_table_reads_as_the_plain_one_and_takes_its_place(tmp_path: Path) -> None:
    rows = [row_of(RECORDS, point=f"p{i}", seed=i) for i in range(3)]
    assert table_path(tmp_path, "t") == tmp_path / "t.csv"
    write_points(tmp_path / "t.csv", rows)
    plain = read_table(table_path(tmp_path, "t"))
    for out in ("a", "t"):
        write_points(tmp_path / f"{out}.csv.gz", rows)
    assert table_path(tmp_path, "t") == tmp_path / "t.csv.gz"
    assert read_table(table_path(tmp_path, "t")) == plain
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "t.csv.gz").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv.gz", "t.csv.gz"}
    write_points(tmp_path / "t.csv", rows)
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv.gz", "t.csv"}


@pytest.mark.parametrize("damage", [lambda content: content[:-9], lambda _: b"point,seed\n"])
def test_a_packed_table_that_is_damaged_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "t.csv.gz"
    write_points(path, [row_of(RECORDS)])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(TableError, match=r"t\.csv\.gz"):
        read_table(path)


def test_merging_replaces_a_point_and_keeps_the_others_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "tables" / "t.csv"
    merge_points(path, [row_of(RECORDS, point="p0"), row_of(RECORDS, point="p1", seed=1)])
    before = {row["point"]: row for row in read_table(path)}
    merge_points(path, [row_of(RECORDS[:2], point="p1", seed=1)])
    after = {row["point"]: row for row in read_table(path)}
    assert after["p0"] == before["p0"]
    assert (before["p1"]["requests_due"], after["p1"]["requests_due"]) == ("4", "2")
    assert [file.name for file in path.parent.iterdir()] == ["t.csv"]


def test_merging_a_class_of_its_own_leaves_the_old_rows_empty_there(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    merge_points(path, [row_of(RECORDS, point="p0")])
    merge_points(path, [row_of([record("z", task="image")], point="p1")])
    rows = {row["point"]: row for row in read_table(path)}
    assert (rows["p0"]["n_image"], rows["p1"]["n_image"]) == ("", "1")


def test_bad_cells_and_broken_tables_are_refused(tmp_path: Path) -> None:
    row = row_of(RECORDS)
    for value, says in ((float("nan"), "nan"), ([1, 2], "list")):
        with pytest.raises(TableError, match=says):
            write_points(tmp_path / "t.csv", [{**row, "attainment": value}])
    assert list(tmp_path.iterdir()) == []
    with (tmp_path / "cut.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["point", "seed"], ["p0"]])
    with pytest.raises(TableError, match="line 2"):
        read_table(tmp_path / "cut.csv")
    with pytest.raises(TableError, match=r"none\.csv"):
        read_table(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"\xff\xfe", "cannot be read"), (b"a\n" + b"b" * 200_000 + b"\n", "is no CSV"), (b"a,b\n1\n", "line 2")],
)
def test_a_file_that_is_no_table_is_told_in_one_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(TableError, match=says):
        read_table(path)
    with pytest.raises(TableError, match="cannot be read"):
        read_table(tmp_path)

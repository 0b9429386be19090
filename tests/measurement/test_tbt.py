"""Time between tokens, by hand."""

import pytest

from engine.core.record import RequestRecord, Status
from harness.measurement.tbt import mean_gap_ns, met_tbt, tbt_cells

MS = 1_000_000


def record(
    tokens: int,
    first_ms: int = 0,
    last_ms: int = 0,
    gap_ms: int | None = None,
    slo_ms: int | None = 100,
    **more: object,
) -> RequestRecord:
    given = {
        "request_id": "r",
        "task": "",
        "prompt_tokens": 1,
        "max_tokens": 8,
        "ttft_slo_ns": None,
        "tbt_slo_ns": None if slo_ms is None else slo_ms * MS,
        "due_at_ns": 0,
        "first_token_at_ns": first_ms * MS if tokens else None,
        "last_token_at_ns": last_ms * MS if tokens else None,
        "output_tokens": tokens,
        "tbt_max_ns": None if gap_ms is None else gap_ms * MS,
        "status": Status.OK,
        **more,
    }
    return RequestRecord(**given)  # type: ignore[arg-type]


def test_the_mean_gap_is_over_the_gaps() -> None:
    assert mean_gap_ns(record(5, 100, 300)) == 50 * MS
    assert mean_gap_ns(record(1, 100, 100)) is None
    assert mean_gap_ns(record(0)) is None


@pytest.mark.parametrize(
    ("given", "met"),
    [
        (record(5, gap_ms=100), True),
        (record(5, gap_ms=101), False),
        (record(1), True),  # it ended by itself after its first token
        (record(5, gap_ms=1, status=Status.TRUNCATED), False),
        (record(5, gap_ms=1, slo_ms=None), False),
    ],
)
def test_every_gap_counts(given: RequestRecord, met: bool) -> None:
    assert met_tbt(given) is met


def test_the_columns() -> None:
    records = [
        record(3, 0, 200, gap_ms=150),
        record(3, 0, 100, gap_ms=60),
        record(0, status=Status.FAILED),
        record(3, 0, 100, gap_ms=90, slo_ms=None),
        record(1, max_tokens=1),
    ]
    cells = tbt_cells(records)
    assert (cells["tbt_n"], cells["tbt_mean_p50_s"], cells["tbt_max_p50_s"]) == (3, 0.05, 0.09)
    assert cells["tbt_attainment"] == pytest.approx(1 / 3)


def test_points_without_outputs_have_no_such_columns() -> None:
    assert tbt_cells([record(1, max_tokens=1)]) == {}
    assert tbt_cells([record(3, 0, 100, gap_ms=9, slo_ms=None)])["tbt_attainment"] is None

"""The plugin's bench: blocking and operators out of a nesting log, and what it finds wrong."""

import pytest

from bench.vllm_plugin.__main__ import faults
from bench.vllm_plugin.asking import Answer
from bench.vllm_plugin.table import Line, mean_of_rounds, ratio
from bench.vllm_plugin.waiting import blocked_s, longest, operators_of

MS = 1_000_000


def entry(name: str, boundary: str, asked_ms: int, started_ms: int, ended_ms: int) -> dict[str, object]:
    stamps = {"asked_at_ns": asked_ms * MS, "started_at_ns": started_ms * MS, "ended_at_ns": ended_ms * MS}
    return {"request_id": f"{name}-0-1f", "boundary": boundary, **stamps}


def test_blocking_is_the_wait_for_the_operator_also_of_those_who_share_it() -> None:
    long = Answer("cmpl-long", 0, 500 * MS)
    shorts = [
        Answer(f"cmpl-{name}", sent_ms * MS, 600 * MS)
        for name, sent_ms in zip("abcde", (10, 20, 30, 490, 510), strict=True)
    ]
    log = [
        entry("cmpl-a", "L0.attn", 12, 100, 115),
        entry("cmpl-b", "L0.attn", 115, 115, 130),  # came within the same operator, asked when a had ended
        entry("cmpl-c", "L0.o_proj", 131, 140, 155),  # the log's word where it asked for itself
    ]
    # d came when nothing could stop any more, e when the long prompt was answered already
    assert blocked_s(shorts, long, log) == pytest.approx([0.088, 0.080, 0.009, 0.010, 0.0])


def test_an_operator_is_what_lies_between_two_neighbouring_boundaries() -> None:
    log = [
        entry("a", "L0.attn", 0, 50, 60), entry("b", "L0.o_proj", 61, 65, 75), entry("c", "L0.down_proj", 76, 95, 99),
        entry("d", "L1.qkv_proj", 99, 110, 120),
    ]  # fmt: skip
    assert operators_of(log) == pytest.approx({"L0.o_proj": 0.005, "L1.qkv_proj": 0.011})
    assert longest([{"L0.attn": 0.3, "L1.attn": 0.31}, {"L0.attn": 0.4}, {"L0.attn": 0.29}]) == ("L1.attn", 0.31)


def test_means_of_rounds_draw_whole_rounds_and_ratios_are_medians_of_pairs() -> None:
    line = mean_of_rounds("blocking", "operator", 64, [[1.0, 3.0], [2.0, 2.0]], "s")
    assert (line.value, line.low, line.high, line.largest, line.n) == (2.0, 2.0, 2.0, 3.0, 4)
    kept = ratio("kept", "operator / none", 64, [(98.0, 100.0), (99.0, 100.0), (101.0, 100.0)])
    assert (kept.value, kept.low, kept.high) == (0.99, 0.98, 1.01)


def test_it_names_what_does_not_hold() -> None:
    def line(measure: str, server: str, value: float, low: float | None, largest: float | None = None) -> Line:
        return Line(measure, server, 64, 9, value, low, None if low is None else value, largest, "s")

    good = [
        line("ttft behind a long prompt", "operator", 0.2, 0.1, 0.39), line("bound", "operator", 0.4, None),
        line("ttft behind a long prompt", "stock", 9.0, 8.0, 9.9), line("bound", "stock", 0.4, None),
        line("blocking, difference", "layer - half_layer", 0.2, 0.1),
        line("decode throughput kept", "operator / none", 0.99, 0.98),
        line("decode throughput kept", "stock / none", 0.5, 0.4),
    ]  # fmt: skip
    assert faults(good) == []
    bad = [
        line("ttft behind a long prompt", "operator", 0.2, 0.1, 0.41), line("bound", "operator", 0.4, None),
        line("blocking, difference", "layer - half_layer", 0.2, -0.1),
        line("decode throughput kept", "operator / none", 0.99, 0.97),
    ]  # fmt: skip
    assert len(faults(bad)) == 3

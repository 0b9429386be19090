"""The trace's pieces of work, and the errors of predictors over them."""

import sys
from pathlib import Path

import pytest

from bench.predictor_error import PROFILE, error_rows, main
from bench.trace_work import Piece, pieces_of
from engine.core.batch import Work
from harness.experiments.point_origin import describe, find_point


class PerToken:
    """A second a new token, whatever was done before."""

    def estimate_ns(self, work: Work) -> int:
        return 1_000_000_000 * sum(new for new, _ in work.lengths)

    def observe(self, work: Work, executed_ns: int) -> None:
        pass


def lengths(kind: str, prompts: list[int]) -> list[tuple[tuple[int, int], ...]]:
    return [piece.work.lengths for piece in pieces_of(prompts, 100, 40, 12) if piece.kind == kind]


def test_a_trace_makes_prompts_batches_and_chunks_at_their_positions() -> None:
    prompts = [30, 50, 90, 20, 20, 200, 10]
    assert lengths("whole", prompts) == [((prompt, 0),) for prompt in prompts]
    assert lengths("batch", prompts) == [((30, 0), (50, 0)), ((20, 0), (20, 0))]
    assert lengths("chunk", [30, 90]) == [((40, 0),), ((40, 40),), ((10, 80),)]


def test_every_prompt_is_preempted_once_after_its_first_operator() -> None:
    done = [piece.work.operators_done for piece in pieces_of([8] * 200, 100, 40, 12) if piece.kind == "rest"]
    assert (len(done), min(done), max(done)) == (200, 1, 11)
    assert all(p.work.operators_done == 0 for p in pieces_of([8] * 200, 100, 40, 12) if p.kind != "rest")


def test_errors_are_relative_and_a_rest_is_priced_as_the_scheduler_does() -> None:
    measured = [
        (Piece("whole", Work(((10, 0),))), 8.0, 0.0),  # predicted 10: + 25 %
        (Piece("whole", Work(((10, 0),))), 12.5, 0.0),  # - 20 %
        (Piece("rest", Work(((10, 0),), operators_done=3)), 5.0, 6.0),  # 10 less 6 executed: - 20 %
    ]
    whole, rest = error_rows(measured, {"polynomial": PerToken()})
    assert (whole["pieces"], whole["not_predicted"]) == (2, 0)
    assert whole["median_error"] == pytest.approx(0.025)
    assert whole["absolute_error_p50"] == pytest.approx(0.225)
    assert whole["absolute_error_p95"] == pytest.approx(0.2475)
    assert (rest["work"], rest["median_error"]) == ("rest", pytest.approx(-0.2))


def test_show_walks_a_row_back_to_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    against = PROFILE.with_name("cpu_demo_operators.json")
    table = tmp_path / "tables" / "predictor_error.csv"
    monkeypatch.setattr(sys, "argv", ["predictor_error.py", "--against", str(against), "--out", str(table)])
    assert main() == 0
    told = describe(find_point(tmp_path, "cpu_demo-cpu_demo.json-cpu_demo_operators.json-chunk-polynomial"), tmp_path)
    assert f"again      python -m bench.predictor_error --against {against} --out {table}\n" in told
    assert "  pieces = 14" in told

"""Order of vLLM's requests by the engine's policies, on a clock of the test's own."""

import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from vllm_flowprefill.deadlines import Deadlines, Executing
from vllm_flowprefill.learned_predictor import LearnedPredictor

from engine.core.batch import Work

S = 10**9


@dataclass(eq=False)
class Params:
    extra_args: dict[str, Any] | None = None


@dataclass(eq=False)
class TheirRequest:
    request_id: str
    num_tokens: int = 100
    ttft_slo: Any = None
    arrival_time: float = field(default_factory=time.time)
    num_computed_tokens: int = 0
    max_tokens: int = 1

    @property
    def num_prompt_tokens(self) -> int:
        return self.num_tokens

    @property
    def sampling_params(self) -> Params:
        return Params(None if self.ttft_slo is None else {"ttft_slo": self.ttft_slo})


class TenMillisecondsAToken:
    def estimate_ns(self, work: Work) -> int:
        return sum(new for new, _ in work.lengths) * S // 100

    def observe(self, work: Work, executed_ns: int) -> None:
        pass


def deadlines(**changed: Any) -> tuple[Deadlines, list[int]]:
    now = [1000 * S]
    settings = {"predictor": TenMillisecondsAToken(), "default_ttft_slo_s": None, **changed}
    return Deadlines(**settings, now_ns=lambda: now[0]), now


def ids(order: list[Any]) -> list[str]:
    return ["executing" if theirs is None else theirs.request_id for theirs in order]


def test_feasible_by_deadline_then_aged_then_infeasible_then_young() -> None:
    known, now = deadlines()
    requests = [
        TheirRequest("young"), TheirRequest("late", ttft_slo=0.5), TheirRequest("later", ttft_slo=0.9),
        TheirRequest("second", ttft_slo=9), TheirRequest("first", ttft_slo=5),
    ]  # fmt: skip
    assert ids(known.order(requests)) == ["first", "second", "later", "late", "young"]
    now[0] += 30 * S
    assert ids(known.order(requests))[0] == "young"


def test_edf_does_not_care_what_is_still_in_time() -> None:
    known, _ = deadlines(order="edf")
    requests = [TheirRequest("young"), TheirRequest("first", ttft_slo=5), TheirRequest("late", ttft_slo=0.5)]
    assert ids(known.order(requests)) == ["late", "first", "young"]


def test_a_default_slo_and_one_that_is_none() -> None:
    known, _ = deadlines(default_ttft_slo_s=2)
    assert known.request(TheirRequest("a")).slo.ttft_ns == 2 * S
    for stated in ("soon", -1, "nan", [1]):
        assert known.request(TheirRequest("b", ttft_slo=stated)).slo.ttft_ns is None
    assert known.request(TheirRequest("c", ttft_slo="0.25")).slo.ttft_ns == S // 4
    assert known.invalid_slos == 4


def test_the_executing_step_wins_ties_and_loses_to_an_earlier_deadline() -> None:
    known, now = deadlines()
    outer = TheirRequest("outer", num_tokens=1000, ttft_slo=60)
    known.request(outer)
    step = Executing(((outer, 400, 0),), now[0])
    urgent, patient = TheirRequest("urgent", ttft_slo=5), TheirRequest("patient", ttft_slo=70)
    assert ids(known.order([urgent, patient], step)) == ["urgent", "executing", "patient"]


def test_executed_time_counts_and_nested_time_does_not() -> None:
    """1000 tokens are 10 s. Due after 12 s; at 5 s with 4 s of it nested, 9 s are left: too late, so it comes last."""
    known, now = deadlines()
    outer, other = TheirRequest("outer", num_tokens=1000, ttft_slo=12), TheirRequest("other", ttft_slo=100)
    known.request(outer), known.request(other)
    started = now[0]
    now[0] += 5 * S
    assert ids(known.order([other], Executing(((outer, 1000, 0),), started))) == ["executing", "other"]
    assert ids(known.order([other], Executing(((outer, 1000, 0),), started, 4 * S))) == ["other", "executing"]


def test_a_request_that_waited_in_the_front_end_is_due_from_its_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    known, now = deadlines()
    monkeypatch.setattr(time, "time_ns", lambda: 10**9 * S)
    ours = known.request(TheirRequest("a", ttft_slo=5, arrival_time=10**9 - 3))
    assert ours.due_at_ns - now[0] == 2 * S


def test_the_predictor_learns_a_straight_line() -> None:
    predictor = LearnedPredictor()
    assert predictor.estimate_ns(Work(((500, 0),))) == 0
    for tokens in (10, 50, 100, 200, 400, 800, 1600):
        predictor.observe(Work(((tokens, 0),)), tokens * S // 1000)
        predictor.observe(Work(((tokens, 0), (1, 5))), S)
    assert predictor.estimate_ns(Work(((500, 0),))) == pytest.approx(0.5 * S, rel=0.01)

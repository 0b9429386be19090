import io
import json

import pytest

from engine.core.batch import Task, Work
from engine.core.events import Arrival, Cancelled
from engine.scheduling.batching import SLOAwareBatching
from engine.scheduling.decision_log import DecisionLog, DecisionLogError, read, replay
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.scheduler import Scheduler
from tests.fakes.fake_executor import FakeExecutor
from tests.scheduling.rig import MS, SETTINGS, Rig, TokenPredictor, request, rows


class Learning(TokenPredictor):
    """Believes in the last measurement."""

    def __init__(self) -> None:
        super().__init__()
        self.token_ns = 1.0

    def estimate_ns(self, work: Work) -> int:
        return round(self.token_ns * sum(new for new, _ in work.lengths))

    def observe(self, work: Work, executed_ns: int) -> None:
        self.token_ns = executed_ns / sum(new for new, _ in work.lengths)


def fresh() -> Scheduler:
    return Scheduler(SlackEDF(), SLOAwareBatching(), Learning(), SETTINGS, rows)


def breaks_with_e(task: Task) -> int | None:
    return 0 if any(sequence.request_id == "E" for sequence in task.sequences) else None


def a_run() -> str:
    """Every kind of event and of command."""
    rig = Rig(
        batching=SLOAwareBatching(),
        world=FakeExecutor(kv_release_ns=9, fails_at=breaks_with_e),
    )
    rig.scheduler._predictor._inner = Learning()
    rig.arrive(request("A", 1000), request("Z", 1 << 20))
    rig.arrive(request("B", 10, slo_ns=5 * MS, at_ns=100_000, max_tokens=3))
    rig.arrive(request("C", 20, at_ns=250_001), request("D", 30, at_ns=250_001), request("E", 77, slo_ns=None))
    rig.step()
    rig.cancel("A")
    rig.drain()
    rig.arrive(request("F", 800, at_ns=rig.world.now_ns()))
    rig.arrive(request("G", 5, slo_ns=MS, at_ns=rig.world.now_ns() + 400))
    rig.drain()
    return rig._file.getvalue()


def test_a_logged_run_replays_exactly() -> None:
    text = a_run()
    events = {"Completion", "Preempted", "Failed", "Cancelled", "KVReleased", "Arrival"}
    commands = {"Start", "Pause", "Resume", "Discard", "ReleaseKV", "Reject", "Fail"}
    assert {kind for kind in events | commands if f'"{kind}"' not in text} == set()
    settings, calls = read(text.splitlines())
    assert settings == {"made": "by a test"}
    assert replay(calls, fresh()) == []


def test_a_difference_is_shown_with_its_place() -> None:
    lines = a_run().splitlines()
    changed = json.loads(lines[2])
    changed["commands"] = []
    lines[2] = json.dumps(changed)
    _, calls = read(lines)
    (difference,) = replay(calls, fresh())
    assert difference.call == 1
    assert difference.logged == ()
    assert len(difference.replayed) == 1


def test_observations_are_part_of_what_is_replayed() -> None:
    """A scheduler that learns nothing decides otherwise: the log does see the predictor."""
    _, calls = read(a_run().splitlines())
    other = Scheduler(SlackEDF(), SLOAwareBatching(token_bound=25), Learning(), SETTINGS, rows)
    assert replay(calls, other) != []


def test_it_is_streamed_line_by_line() -> None:
    file = io.StringIO()
    log = DecisionLog(file, {"policy": "s_edf"})
    assert json.loads(file.getvalue()) == {"version": 1, "settings": {"policy": "s_edf"}}
    log.write(5, [Cancelled(4, 1, "a")], [])
    log.write(6, [Arrival(6, 2, request("A", 5))], [])
    lines = file.getvalue().splitlines()
    assert len(lines) == 3
    calls = list(read(lines)[1])
    assert calls[0].events == (Cancelled(4, 1, "a"),)
    assert calls[1].events[0].request == request("A", 5)  # type: ignore[union-attr]
    assert calls[1].now_ns == 6


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "line 1"),
        (["not json"], "line 1"),
        (['{"version": 99, "settings": {}}'], "line 1: not a decision log of version 1"),
        (['{"version": 1}'], "line 1: not a decision log of version 1"),
        (['{"version": 1, "settings": {}}', "[]"], "line 2: not an object"),
        (['{"version": 1, "settings": {}}', '{"now_ns": 1, "events": ["Arrival"], "commands": []}'], "line 2"),
        (['{"version": 1, "settings": {}}', "", '{"now_ns": 1, "events": [], "comm'], "line 3"),  # cut off half-way
        (['{"version": 1, "settings": {}}', '{"now_ns": 1, "events": [{"type": "Birth"}], "commands": []}'], "line 2"),
    ],
)
def test_a_file_that_is_no_log(lines: list[str], words: str) -> None:
    with pytest.raises(DecisionLogError, match=words):
        list(read(lines)[1])

"""A scheduler in a fake world, driven step by step, with every contract and invariant checked after each call."""

import io
from collections.abc import Callable, Sequence

from engine.core.batch import Task, Work
from engine.core.clock import NS_PER_S
from engine.core.commands import Resume, Start
from engine.core.events import Event, Output
from engine.core.ports import Batching, ItemState, Policy, Share, WorkItem
from engine.core.request import Request
from engine.core.slo import SLO
from engine.scheduling.batching import NoBatching
from engine.scheduling.decision_log import DecisionLog, read, replay
from engine.scheduling.driver import Driver
from engine.scheduling.execution_pool import prefill_task
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.request_book import LiveRequest, waiting_item
from engine.scheduling.scheduler import Scheduler, SchedulerSettings
from tests.fakes.fake_executor import FakeExecutor

MS = 1_000_000
TOKEN_NS = 1000
SETTINGS = SchedulerSettings(
    kv_blocks=100_000, block_tokens=16, activation_capacity_bytes=1 << 40, max_context_tokens=1 << 20
)


class TokenPredictor:
    """1000 ns a token, exactly what the fake executor takes."""

    def __init__(self) -> None:
        self.asked = 0
        self.observed: list[tuple[Work, int]] = []

    def estimate_ns(self, work: Work) -> int:
        self.asked += 1
        return TOKEN_NS * sum(new for new, _ in work.lengths)

    def observe(self, work: Work, executed_ns: int) -> None:
        self.observed.append((work, executed_ns))


def request(name: str, tokens: int, slo_ns: int | None = 10 * NS_PER_S, at_ns: int = 0, **more: int) -> Request:
    """A request called by a letter or a letter and a number; its seq is its place in the alphabet."""
    seq = more.pop("seq", (ord(name[0]) - ord("A")) * 1000 + int(name[1:] or 0))
    return Request(name, seq, at_ns, tokens, more.pop("max_tokens", 1), SLO(slo_ns))


def item(
    key: int,
    due_at_ns: int = 0,
    remaining_ns: int = 0,
    tokens: int = 10,
    context: int = 0,
    state: ItemState = ItemState.WAITING,
    slo: int | None = NS_PER_S,
) -> WorkItem:
    """A work item due when the test says; slo: of its member, which arrived that long before it is due."""
    wait = 30 * NS_PER_S if slo is None else slo
    member = Request(f"r{key}", key, due_at_ns - wait, tokens + context, 1, SLO(slo))
    return WorkItem(
        key, state, (member,), member.arrived_at_ns, due_at_ns, slo is not None, remaining_ns, tokens, context
    )


def always(shares: Sequence[Share]) -> bool:
    return True


def rows(task: Task) -> int:
    """Activation bytes: one a row."""
    return task.new_tokens


class Sink:
    """What clients heard."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[Output]] = {}
        self.rejections: dict[str, str] = {}
        self.never: set[str] = set()
        self.failures: dict[str, str] = {}

    def deliver(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            self.tokens.setdefault(output.request_id, []).append(output)

    def rejected(self, request_id: str, reason: str, never: bool) -> None:
        self.rejections[request_id] = reason
        if never:
            self.never.add(request_id)

    def failed(self, request_id: str, reason: str) -> None:
        self.failures[request_id] = reason


class Rig:
    """`step` jumps to the next instant with events; `runs` tells what executed, in order."""

    def __init__(
        self,
        policy: Policy | None = None,
        batching: Batching | None = None,
        settings: SchedulerSettings = SETTINGS,
        world: FakeExecutor | None = None,
        activation_bytes: Callable[[Task], int] = rows,
        complete: bool = True,
    ) -> None:
        """complete: whether the policy's order always holds all live work, so that nothing may idle."""
        self._parts = (policy or SlackEDF(), batching or NoBatching(), settings, activation_bytes)
        self._complete = complete
        self.predictor = TokenPredictor()
        self.scheduler = self._fresh(self.predictor)
        self.world = world or FakeExecutor()
        self.sink = Sink()
        self._file = io.StringIO()
        self._log = DecisionLog(self._file, {"made": "by a test"})
        self.driver = Driver(self.scheduler, self.world, self.world, self.world, self.sink, self._log)

    def _fresh(self, predictor: TokenPredictor) -> Scheduler:
        policy, batching, settings, activation_bytes = self._parts
        return Scheduler(policy, batching, predictor, settings, activation_bytes)

    def arrive(self, *requests: Request) -> list[Event]:
        """They arrive at their instants; takes the step of the first."""
        for each in requests:
            self.world.arrive(each)
        return self.step()

    def cancel(self, request_id: str) -> list[Event]:
        self.world.cancel(request_id, self.world.now_ns())
        return self.step()

    def step(self) -> list[Event]:
        events = self.world.wait()
        if events:
            self.driver.step(events)
            self.check()
        return events

    def drain(self, most: int = 3000) -> None:
        while self.step():
            most -= 1
            assert most, "it never ends"

    def check(self) -> None:
        scheduler = self.scheduler
        scheduler.check()
        pool, book = scheduler._pool, scheduler._book
        if self._complete and pool.executing is None:
            assert not pool.preempted, "idle while a task is preempted"
            assert not book.decoding, "idle while requests decode"
            assert not any(self._fits_alone(each) for each in book.waiting.values()), "idle while what fits waits"

    def _fits_alone(self, live: LiveRequest) -> bool:
        """Worked out from the books of the world, not by the scheduler's own rules."""
        _, batching, limits, activation_bytes = self._parts
        if live.missing_blocks > limits.kv_blocks - sum(
            -(-each.request.total_tokens // limits.block_tokens)
            for each in self.scheduler._book.requests
            if each.request.request_id in self.world.kv_holders | self.world.kv_releasing
        ):
            return False
        waiting = waiting_item(live.request, live.context_tokens, self.predictor)

        def fits(shares: Sequence[Share]) -> bool:
            return activation_bytes(prefill_task(0, shares)) <= limits.activation_capacity_bytes

        return bool(batching.select((waiting,), fits, self.predictor, self.world.now_ns()))

    def check_baseline(self) -> None:
        """Nothing live, nothing held."""
        self.scheduler.check()
        live = self.scheduler.live
        assert (live.waiting, live.executing, live.preempted, live.decoding) == (0, 0, 0, 0)
        assert self.scheduler.kv_free_blocks == self._parts[2].kv_blocks
        assert self.scheduler.activation_held_bytes == 0
        assert not self.scheduler._book.requests
        assert not self.world.kv_holders
        assert not self.world.kv_releasing

    def check_replay(self) -> None:
        """A fresh scheduler, fed the log, gives the same commands."""
        _, calls = read(self._file.getvalue().splitlines())
        assert replay(calls, self._fresh(TokenPredictor())) == []

    @property
    def runs(self) -> list[str]:
        """ "A+B" for a start, "~A" for a resumption; request ids joined by plus, chunks and decode steps alike."""
        names: dict[int, str] = {}
        found = []
        for command in self.world.commands:
            if isinstance(command, Start):
                names[command.task.task_id] = "+".join(s.request_id for s in command.task.sequences)
                found.append(names[command.task.task_id])
            elif isinstance(command, Resume):
                found.append("~" + names[command.task_id])
        return found

from collections.abc import Sequence

from engine.core.commands import ExecutorCommand, Fail, Reject
from engine.core.events import Event, Output
from engine.scheduling.batching import NoBatching
from engine.scheduling.driver import Driver
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.scheduler import Scheduler
from tests.fakes.fake_executor import FakeExecutor
from tests.scheduling.rig import SETTINGS, Rig, Sink, TokenPredictor, request, rows


class Ticking(FakeExecutor):
    """Its clock goes on by 100 at every look."""

    looks = 0

    def now_ns(self) -> int:
        self.looks += 1
        return self._time_ns + 100 * self.looks


def test_it_runs_until_the_source_is_closed_and_tells_clients() -> None:
    world, sink = FakeExecutor(fails_at=lambda task: 0 if task.new_tokens == 7 else None), Sink()
    scheduler = Scheduler(SlackEDF(), NoBatching(), TokenPredictor(), SETTINGS, rows)
    for each in (request("A", 10, max_tokens=2), request("B", 7), request("C", 1 << 20)):
        world.arrive(each)
    Driver(scheduler, world, world, world, sink).run()
    assert sink.tokens["A"] == [Output("A", 1), Output("A", 2, "length")]
    assert sink.failures == {"B": "an operator broke"}
    assert list(sink.rejections) == ["C"]
    scheduler.check()


def test_the_executor_hears_only_what_is_for_it_and_before_the_clients() -> None:
    order: list[str] = []

    class Recording(FakeExecutor):
        def submit(self, commands: Sequence[ExecutorCommand]) -> None:
            assert not any(isinstance(command, Reject | Fail) for command in commands)
            order.append("executor")
            super().submit(commands)

    class Hearing(Sink):
        def deliver(self, outputs: Sequence[Output]) -> None:
            order.append("client")

        def rejected(self, request_id: str, reason: str, never: bool) -> None:
            order.append("refused")

    world = Recording()
    scheduler = Scheduler(SlackEDF(), NoBatching(), TokenPredictor(), SETTINGS, rows)
    world.arrive(request("A", 10))
    world.arrive(request("Z", 1 << 20))
    driver = Driver(scheduler, world, world, world, Hearing())
    driver.step(world.wait())
    driver.step(world.wait())
    assert order == ["executor", "refused", "executor", "client"]


def test_scheduling_time_is_measured_by_the_drivers_clock() -> None:
    """Of `handle` alone: what the executor takes to hear commands is not the scheduler's."""

    class SlowToHear(Ticking):
        def submit(self, commands: Sequence[ExecutorCommand]) -> None:
            self.looks += 50
            super().submit(commands)

    rig = Rig(world=SlowToHear())
    rig.arrive(request("A", 10))
    assert rig.scheduler.report().scheduling_ns == 100


def test_the_log_gets_every_call() -> None:
    calls: list[int] = []

    class Log:
        def write(self, now_ns: int, events: Sequence[Event], commands: Sequence[object]) -> None:
            calls.append(len(events))

    world = FakeExecutor()
    scheduler = Scheduler(SlackEDF(), NoBatching(), TokenPredictor(), SETTINGS, rows)
    world.arrive(request("A", 10))
    Driver(scheduler, world, world, world, Sink(), Log()).run()
    assert calls == [1, 1, 1]  # arrival, completion, released KV

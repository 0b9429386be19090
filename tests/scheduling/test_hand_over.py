"""Requests whose KV leaves after the first token, or comes with it."""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.batch import Task, TaskKind
from engine.core.commands import Start
from engine.core.request import HandOver, Request
from engine.core.slo import SLO
from tests.fakes.fake_executor import FakeExecutor
from tests.scheduling.rig import SETTINGS, Rig


def sends(name: str, tokens: int, at_ns: int = 0, seq: int = 0, max_tokens: int = 4) -> Request:
    return Request(name, seq, at_ns, tokens, max_tokens, SLO(10**9), hand_over=HandOver.SENDS)


def receives(name: str, tokens: int, at_ns: int = 0, seq: int = 0, max_tokens: int = 4) -> Request:
    return Request(name, seq, at_ns, tokens, max_tokens, SLO(10**9), hand_over=HandOver.RECEIVES)


def kinds(rig: Rig) -> list[TaskKind]:
    return [command.task.kind for command in rig.world.commands if isinstance(command, Start)]


def small_pool(blocks: int) -> Rig:
    return Rig(settings=dataclasses.replace(SETTINGS, kv_blocks=blocks))


def test_a_prefilled_request_holds_its_blocks_until_it_was_sent() -> None:
    rig = Rig()
    rig.arrive(sends("A", 32))
    rig.drain()
    # The prompt's blocks only: its output is another instance's business.
    assert rig.scheduler.kv_free_blocks == SETTINGS.kv_blocks - 2
    assert rig.scheduler.live.handing_over == 1
    assert [output.finish_reason for output in rig.sink.tokens["A"]] == [None]
    rig.world.ask_send("A", rig.world.now_ns())
    rig.drain()
    assert kinds(rig) == [TaskKind.PREFILL, TaskKind.KV_SEND]
    assert rig.scheduler.report().kv_sent == 1
    assert rig.scheduler.report().completed_requests == 0
    rig.check_baseline()
    rig.check_replay()


def test_a_send_runs_beside_a_prefill() -> None:
    rig = Rig()
    rig.arrive(sends("A", 32))
    rig.drain()
    rig.arrive(sends("B", 1000, rig.world.now_ns(), seq=1))
    rig.world.ask_send("A", rig.world.now_ns())
    rig.step()
    assert rig.scheduler.live.executing == 1
    rig.step()  # 320 ns later, long before the prefill's end
    assert rig.scheduler.report().kv_sent == 1
    assert rig.scheduler.report().preemptions == 0


def test_a_request_over_with_its_first_token_is_not_sent() -> None:
    rig = Rig(world=FakeExecutor(output_tokens={"A": 1}))
    rig.arrive(sends("A", 32))
    rig.drain()
    assert rig.scheduler.report().completed_requests == 1
    rig.check_baseline()


def test_sends_that_nobody_holds_are_ignored() -> None:
    rig = Rig()
    rig.arrive(sends("A", 32))
    rig.world.ask_send("A", 0)  # before its first token
    rig.world.ask_send("Z", 0)
    rig.drain()
    assert kinds(rig) == [TaskKind.PREFILL]
    rig.cancel("A")
    rig.drain()
    rig.check_baseline()


def test_a_client_that_leaves_while_the_kv_is_sent() -> None:
    rig = Rig()
    rig.arrive(sends("A", 32))
    rig.drain()
    rig.world.ask_send("A", rig.world.now_ns())
    rig.step()
    rig.cancel("A")
    # The send still reads the blocks.
    assert rig.scheduler.kv_free_blocks < SETTINGS.kv_blocks
    rig.drain()
    rig.check_baseline()


def test_a_send_that_fails_is_its_request_s_failure() -> None:
    rig = Rig(world=FakeExecutor(fails_at=lambda task: 0 if task.kind is TaskKind.KV_SEND else None))
    rig.arrive(sends("A", 32))
    rig.drain()
    rig.world.ask_send("A", rig.world.now_ns())
    rig.drain()
    assert rig.sink.failures == {"A": "the hand-over broke"}
    assert rig.scheduler.report().executed_ns == 32_000  # the prefill's
    rig.check_baseline()


def test_a_received_request_decodes_its_other_tokens() -> None:
    world = FakeExecutor(output_tokens={"A": 3})  # of four, with the one it came with
    rig = Rig(world=world)
    rig.arrive(receives("A", 32))
    rig.drain()
    assert kinds(rig) == [TaskKind.KV_RECEIVE, *[TaskKind.DECODE_STEP] * 3]
    decodes = [c.task for c in rig.world.commands if isinstance(c, Start) and c.task.kind is TaskKind.DECODE_STEP]
    assert [task.sequences[0].context_tokens for task in decodes] == [32, 33, 34]
    report = rig.scheduler.report()
    assert (report.kv_received, report.completed_requests, report.decode_tokens) == (1, 1, 3)
    rig.check_baseline()
    rig.check_replay()


def test_an_incoming_request_waits_for_blocks_in_order() -> None:
    rig = small_pool(5)
    rig.arrive(receives("A", 60), receives("B", 60, seq=1), receives("C", 12, seq=2))
    # Four blocks each of A and B; C would fit beside A, but does not overtake B.
    assert kinds(rig) == [TaskKind.KV_RECEIVE]
    assert rig.scheduler.live.handing_over == 3
    rig.drain()
    assert rig.scheduler.report().completed_requests == 3
    rig.check_baseline()


def test_an_incoming_request_that_can_never_fit_is_refused() -> None:
    rig = small_pool(5)
    rig.arrive(receives("A", 100))
    assert rig.sink.never == {"A"}
    rig.check_baseline()


def test_a_receive_that_fails_is_its_request_s_failure() -> None:
    rig = Rig(world=FakeExecutor(fails_at=lambda task: 0 if task.kind is TaskKind.KV_RECEIVE else None))
    rig.arrive(receives("A", 32))
    rig.drain()
    assert rig.sink.failures == {"A": "the hand-over broke"}
    rig.check_baseline()


@settings(max_examples=40)
@given(
    plan=st.lists(
        st.tuples(
            st.sampled_from(list(HandOver)),
            st.integers(1, 90),
            st.sampled_from([1, 2, 4]),
            st.integers(0, 3),  # steps before the send is asked for, or the client leaves
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    ),
    failing=st.sets(st.integers(0, 20), max_size=3),
    release_ns=st.sampled_from([0, 5_000]),
)
def test_whatever_happens_nothing_is_left(
    plan: list[tuple[HandOver, int, int, int, bool]], failing: set[int], release_ns: int
) -> None:
    def fails_at(task: Task) -> int | None:
        return 0 if task.task_id in failing else None

    rig = Rig(
        world=FakeExecutor(fails_at=fails_at, kv_release_ns=release_ns),
        settings=dataclasses.replace(SETTINGS, kv_blocks=12, activation_capacity_bytes=120),
    )
    for seq, (hand_over, tokens, max_tokens, steps, leaves) in enumerate(plan):
        name = f"A{seq}"
        if hand_over is HandOver.RECEIVES:
            max_tokens += 1
        made = Request(name, seq, rig.world.now_ns(), tokens, max_tokens, SLO(50_000), hand_over=hand_over)
        rig.arrive(made)
        for _ in range(steps):
            rig.step()
        if leaves:
            rig.cancel(name)
        rig.world.ask_send(name, rig.world.now_ns())
    rig.drain()
    for _ in plan:  # what is sent makes room for others, which are then to be sent, too
        for seq in range(len(plan)):
            rig.world.ask_send(f"A{seq}", rig.world.now_ns())
        rig.drain()
    rig.check_baseline()
    rig.check_replay()

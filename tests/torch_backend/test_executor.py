"""The executor's contract: every command, and what it answers."""

import threading
from collections.abc import Iterator

import pytest
import torch

from engine.core.batch import Sequence, Task, TaskKind
from engine.core.commands import Discard, Pause, ReleaseKV, Resume, Start
from engine.core.events import Completion, Failed, KVReleased, Output, Preempted
from engine.model.granularity import Granularity
from engine.torch_backend.clock import MonotonicClock
from engine.torch_backend.models.llama import Llama
from tests.torch_backend.engine_run import prompt
from tests.torch_backend.executor_rig import HeldOperator, Rig, prefill


@pytest.fixture
def rig(tiny: Llama) -> Iterator[Rig]:
    made = Rig(tiny)
    yield made
    made.executor.close()


def test_a_prefill_completes_with_its_token_and_finish_reason(rig: Rig) -> None:
    rig.register("a", prompt(20), max_tokens=1)
    rig.register("b", prompt(9, seed=2), max_tokens=2, ignore_eos=True)
    rig.executor.submit([prefill(7, Sequence("a", 0, 20), Sequence("b", 0, 4, last=False))])
    event = rig.event()
    assert isinstance(event, Completion)
    assert (event.task_id, event.executed_ns > 0) == (7, True)
    first, second = event.outputs
    assert (first.request_id, first.finish_reason) == ("a", "length")
    assert second == Output("b", None, None)
    rig.executor.submit([prefill(8, Sequence("b", 4, 5))])
    event = rig.event()
    assert isinstance(event, Completion)
    assert event.outputs[0].token_id is not None
    assert event.outputs[0].finish_reason is None


@pytest.mark.parametrize("granularity", [Granularity.OPERATOR, Granularity.TILE])
def test_pausing_at_every_boundary_in_turn_changes_no_bit(
    tiny: Llama, monkeypatch: pytest.MonkeyPatch, granularity: Granularity
) -> None:
    """A batch with a context, paused before each operator and resumed; another request runs in every pause."""
    tokens = {"a": prompt(30), "b": prompt(17, seed=2)}

    def run(pause: bool) -> tuple[torch.Tensor, list[torch.Tensor], int]:
        rig = Rig(tiny, granularity)
        for cached in (*rig.executor.cache.keys, *rig.executor.cache.values):
            cached.zero_()
        for name, ids in tokens.items():
            rig.register(name, ids)
        rig.executor.submit([prefill(1, Sequence("a", 0, 11, last=False))])
        assert isinstance(rig.event(), Completion)
        task_id, stops = 2, 0
        start = prefill(2, Sequence("a", 11, 19), Sequence("b", 0, 17))
        rig.executor.submit([start, Pause(2)] if pause else [start])
        while isinstance(event := rig.event(), Preempted):
            assert event.operator_index == stops
            stops += 1
            task_id += 1
            other = f"other{task_id}"
            rig.register(other, prompt(12, seed=task_id))
            rig.executor.submit([prefill(task_id, Sequence(other, 0, 12))])
            assert isinstance(rig.event(), Completion)
            rig.executor.submit([ReleaseKV(other)])
            assert isinstance(rig.event(), KVReleased)
            with rig.executor._changed:  # held, so that the task cannot run past its next boundary before it is told
                rig.executor.submit([Resume(2)])
                rig.executor._held[2].gate.stop_at(stops, 0)
        assert isinstance(event, Completion)
        held = [
            part.clone()
            for layer in range(tiny.shape.layers)
            for name, ids in tokens.items()
            for part in rig.executor.cache.read(layer, name, len(ids))
        ]
        rig.executor.close()
        return logits[-1], held, stops

    logits: list[torch.Tensor] = []
    plain_head = Llama.head

    def keep_logits(model: Llama, state: object) -> None:
        plain_head(model, state)  # type: ignore[arg-type]
        if state.logits.shape[0] == 2:  # type: ignore[attr-defined]
            logits.append(state.logits.clone())  # type: ignore[attr-defined]

    monkeypatch.setattr(Llama, "head", keep_logits)
    whole_logits, whole_kv, _ = run(pause=False)
    paused_logits, paused_kv, stops = run(pause=True)
    # 36 rows in tiles of 7: 6 for each of four operators; 552 pairs in tiles of 60: 10.
    assert stops == (12 if granularity is Granularity.OPERATOR else 2 + 2 * (4 * 6 + 10))
    assert torch.equal(whole_logits, paused_logits)
    assert all(torch.equal(one, other) for one, other in zip(whole_kv, paused_kv, strict=True))


def test_a_pause_reaches_an_executing_task_at_the_next_boundary(
    tiny: Llama, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldOperator(monkeypatch, tiny, "embedding")
    rig.register("a", prompt(20))
    rig.executor.submit([prefill(1, Sequence("a", 0, 20))])
    assert held.reached.wait(120)
    rig.executor.submit([Pause(1)])
    held.go.set()
    event = rig.event()
    assert isinstance(event, Preempted)
    assert (event.task_id, event.operator_index) == (1, 1)
    rig.executor.submit([Resume(1)])
    assert isinstance(rig.event(), Completion)


def test_executed_time_leaves_pauses_out(tiny: Llama, rig: Rig) -> None:
    rig.register("a", prompt(20))
    rig.executor.submit([prefill(1, Sequence("a", 0, 20)), Pause(1)])
    paused = rig.event()
    assert isinstance(paused, Preempted)
    before_resume_ns = MonotonicClock().now_ns()
    while MonotonicClock().now_ns() < before_resume_ns + 50_000_000:
        pass
    before_resume_ns = MonotonicClock().now_ns()
    rig.executor.submit([Resume(1)])
    done = rig.event()
    assert isinstance(done, Completion)
    assert paused.executed_ns < done.executed_ns <= paused.executed_ns + done.at_ns - before_resume_ns


def test_the_completion_wins_when_the_pause_comes_too_late(
    tiny: Llama, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldOperator(monkeypatch, tiny, "head")
    rig.register("a", prompt(20))
    rig.executor.submit([prefill(1, Sequence("a", 0, 20))])
    assert held.reached.wait(120)
    rig.executor.submit([Pause(1)])
    held.go.set()
    assert isinstance(rig.event(), Completion)
    rig.executor.submit([Pause(1)])
    rig.register("b", prompt(5))
    rig.executor.submit([prefill(2, Sequence("b", 0, 5))])
    assert isinstance(rig.event(), Completion)


@pytest.mark.parametrize("round_number", range(3))
def test_pause_and_completion_race_with_one_answer(tiny: Llama, rig: Rig, round_number: int) -> None:
    """A second thread pauses while the task runs; whichever wins, exactly one answer comes, and the task ends."""
    for task_id in range(40):
        name = f"r{task_id}"
        rig.register(name, prompt(1 + task_id % 7))
        rig.executor.submit([prefill(task_id, Sequence(name, 0, 1 + task_id % 7))])
        started = threading.Barrier(2)

        def pause(task: int = task_id, gate: threading.Barrier = started) -> None:
            gate.wait()
            for _ in range(task * 30):
                pass
            rig.executor.submit([Pause(task)])

        other = threading.Thread(target=pause, daemon=True)
        other.start()
        started.wait()
        event = rig.event()
        other.join()
        if isinstance(event, Preempted):
            rig.executor.submit([Resume(task_id)])
            event = rig.event()
        assert isinstance(event, Completion)
        assert event.task_id == task_id
        rig.executor.submit([ReleaseKV(name)])
        assert isinstance(rig.event(), KVReleased)
    assert rig.waiting == []
    assert rig.executor.cache.free_blocks == 64


def test_a_discarded_task_is_forgotten_and_its_members_can_start_again(rig: Rig) -> None:
    rig.register("a", prompt(20))
    rig.executor.submit([prefill(1, Sequence("a", 0, 20)), Pause(1)])
    assert isinstance(rig.event(), Preempted)
    rig.executor.submit([Discard(1), prefill(2, Sequence("a", 0, 20))])
    event = rig.event()
    assert isinstance(event, Completion)
    assert event.task_id == 2


def test_kv_of_a_member_is_freed_only_after_its_task(tiny: Llama, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldOperator(monkeypatch, tiny, "embedding")
    rig.register("a", prompt(20))
    rig.register("b", prompt(20))
    rig.executor.submit([prefill(1, Sequence("a", 0, 20), Sequence("b", 0, 20))])
    assert held.reached.wait(120)
    rig.executor.submit([ReleaseKV("a")])
    rig.executor.forget("a")
    assert rig.executor.cache.holders == {"a", "b"}
    rig.executor.submit([Pause(1)])
    held.go.set()
    assert isinstance(rig.event(), Preempted)
    assert rig.executor.cache.holders == {"a", "b"}
    rig.executor.submit([Resume(1)])
    assert isinstance(rig.event(), Completion)
    released = rig.event()
    assert isinstance(released, KVReleased)
    assert released.request_id == "a"
    assert rig.executor.cache.holders == {"b"}


def test_kv_of_a_request_that_never_started_is_answered_at_once(rig: Rig) -> None:
    rig.register("a", prompt(20))
    rig.executor.submit([ReleaseKV("a")])
    assert isinstance(rig.event(), KVReleased)


def test_kv_is_allocated_for_the_prompt_and_all_tokens_to_come(rig: Rig) -> None:
    rig.register("a", prompt(20), max_tokens=5)
    rig.executor.submit([prefill(1, Sequence("a", 0, 8, last=False))])
    assert isinstance(rig.event(), Completion)
    assert rig.executor.cache.free_blocks == 64 - 4
    rig.executor.check()


@pytest.mark.parametrize("operator", ["embedding", "qkv_proj", "attention", "down_proj", "head"])
def test_a_failure_in_an_operator_is_told_and_the_thread_lives_on(
    tiny: Llama, rig: Rig, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such kernel")

    rig.register("a", prompt(20))
    with monkeypatch.context() as patch:
        patch.setattr(tiny, operator, broken)
        rig.executor.submit([prefill(1, Sequence("a", 0, 20))])
        event = rig.event()
    assert isinstance(event, Failed)
    assert (event.task_id, event.reason) == (1, "RuntimeError: no such kernel")
    rig.executor.submit([ReleaseKV("a")])
    assert isinstance(rig.event(), KVReleased)
    assert rig.executor.cache.free_blocks == 64
    rig.executor.submit([prefill(2, Sequence("a", 0, 20))])
    assert isinstance(rig.event(), Completion)


@pytest.mark.parametrize(
    ("share", "reason"),
    [
        (Sequence("a", 0, 21), "ValueError: tokens up to 21 are asked for, the request has 20"),
        (Sequence("unknown", 0, 4), "request unknown is not registered"),
    ],
)
def test_a_task_that_cannot_be_planned_fails(rig: Rig, share: Sequence, reason: str) -> None:
    rig.register("a", prompt(20))
    rig.executor.submit([prefill(1, share)])
    event = rig.event()
    assert isinstance(event, Failed)
    assert event.reason == reason


def test_a_prompt_past_the_models_positions_fails_with_its_name(tiny: Llama) -> None:
    rig = Rig(tiny, kv_blocks=200)
    rig.register("a", prompt(1025))
    rig.executor.submit([prefill(1, Sequence("a", 0, 1025))])
    event = rig.event()
    rig.executor.close()
    assert isinstance(event, Failed)
    assert event.reason == "ValueError: request a reaches position 1025, model cpu_tiny has 1024"


def test_too_few_kv_blocks_fail_the_task_and_nothing_leaks(rig: Rig) -> None:
    rig.register("a", prompt(300))
    rig.register("b", prompt(300))
    rig.executor.submit([prefill(1, Sequence("a", 0, 300), Sequence("b", 0, 300))])
    event = rig.event()
    assert isinstance(event, Failed)
    assert event.reason == "38 KV blocks are needed, 26 are free"
    rig.executor.submit([ReleaseKV("a"), ReleaseKV("b")])
    assert rig.executor.cache.free_blocks == 64


def test_kv_send_is_refused_with_a_reason(rig: Rig) -> None:
    rig.register("a", prompt(5))
    rig.executor.submit([Start(Task(1, TaskKind.KV_SEND, (Sequence("a", 0, 5),)))])
    event = rig.event()
    assert isinstance(event, Failed)
    assert event.reason == "this executor sends no KV and receives none"


def test_a_second_executing_task_breaks_the_contract(rig: Rig, tiny: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldOperator(monkeypatch, tiny, "embedding")
    rig.register("a", prompt(5))
    rig.executor.submit([prefill(1, Sequence("a", 0, 5))])
    with pytest.raises(ValueError, match="task 2 cannot execute while task 1 does"):
        rig.executor.submit([prefill(2, Sequence("a", 0, 5))])
    held.go.set()


def test_registering_an_id_twice_is_an_error(rig: Rig) -> None:
    rig.register("a", prompt(5))
    with pytest.raises(ValueError, match="registered already"):
        rig.register("a", prompt(5))
    rig.executor.forget("a")
    rig.register("a", prompt(5))


def test_closing_while_a_task_runs_ends_the_thread(tiny: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tiny)
    held = HeldOperator(monkeypatch, tiny, "embedding")
    rig.register("a", prompt(20))
    rig.executor.submit([prefill(1, Sequence("a", 0, 20))])
    assert held.reached.wait(120)
    closer = threading.Thread(target=rig.executor.close, daemon=True)
    closer.start()
    held.go.set()
    closer.join(120)
    assert not closer.is_alive()
    rig.queue.close()
    assert rig.queue.wait() == []


def test_activation_bytes_covers_what_a_preempted_task_holds(tiny: Llama, rig: Rig) -> None:
    rig.register("a", prompt(30))
    rig.register("b", prompt(17, seed=2))
    start = prefill(1, Sequence("a", 0, 30), Sequence("b", 0, 17))
    rig.executor.submit([start, Pause(1)])
    assert isinstance(rig.event(), Preempted)
    program = rig.executor._held[1].program
    assert program is not None
    state = program.state
    own = [
        state.token_ids,
        state.cos,
        state.sin,
        state.slots,
        state.hidden,
        state.queries,
        state.middle,
        state.last_rows,
    ]
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in own if isinstance(t, torch.Tensor)
    }
    assert rig.executor.activation_bytes(start.task) == sum(storages.values())


def test_submitting_never_waits_for_the_executing_operator(
    tiny: Llama, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldOperator(monkeypatch, tiny, "embedding")
    rig.register("a", prompt(20))
    rig.executor.submit([prefill(1, Sequence("a", 0, 20))])
    assert held.reached.wait(120)
    rig.executor.submit([ReleaseKV("nobody")])
    assert isinstance(rig.event(), KVReleased)  # while the operator still stands
    held.go.set()
    assert isinstance(rig.event(), Completion)

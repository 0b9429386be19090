"""Clients that leave at random moments, with the real scheduler and the real executor together."""

import random
from collections.abc import Callable

import pytest

from baselines.policies.chunked_prefill import ChunkBatching
from baselines.policies.request_restart import RequestRestart
from engine.core.clock import NS_PER_MS, NS_PER_S
from engine.core.ports import Batching, Policy
from engine.model.granularity import Granularity
from engine.scheduling.batching import SLOAwareBatching
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from engine.torch_backend.models.llama import Llama
from tests.torch_backend.scheduled_engine import HeldStarts, ScheduledEngine

System = Callable[[], tuple[Policy, Batching]]
KV_BLOCKS = 200


def flowprefill() -> tuple[Policy, Batching]:
    return SlackEDF(), SLOAwareBatching(0.1, 64)


def chunked() -> tuple[Policy, Batching]:
    return NonPreemptive(SlackEDF()), ChunkBatching(16)


def restart() -> tuple[Policy, Batching]:
    return RequestRestart(SlackEDF()), SLOAwareBatching(0.1, 64)


@pytest.mark.parametrize(
    ("system", "granularity", "aborts", "stands"),
    [
        (flowprefill, Granularity.OPERATOR, 500, {"waiting", "executing", "preempted", "decoding"}),
        (flowprefill, Granularity.NONE, 100, {"waiting", "executing", "decoding"}),
        (chunked, Granularity.OPERATOR, 100, {"waiting", "executing", "decoding"}),
        (restart, Granularity.TILE, 100, {"waiting", "executing", "decoding"}),
    ],
    ids=["flowprefill", "flowprefill whole", "chunked", "restart"],
)
def test_e09_aborts_at_random_states_leave_all_memory_free(
    tiny: Llama,
    monkeypatch: pytest.MonkeyPatch,
    system: System,
    granularity: Granularity,
    aborts: int,
    stands: set[str],
) -> None:
    """Started tasks are held at their first operator or run freely, as drawn: so that every state is met."""
    draw, held = random.Random(5), HeldStarts(monkeypatch, tiny)
    policy, batching = system()
    # Blocks for about three long prompts, activations for about two: some requests wait for memory.
    engine = ScheduledEngine(
        tiny, policy, batching, KV_BLOCKS, 8, granularity, 5_000, activation_capacity_bytes=800_000
    )
    seen: set[str] = set()
    left = number = 0
    while left < aborts:
        if draw.random() < 0.4:
            held.let_go(engine.executing)
        slo_ns = draw.choice([None, 20 * NS_PER_MS, NS_PER_S, 60 * NS_PER_S])
        tokens = draw.choice([draw.randint(1, 40), draw.randint(300, 700)])
        engine.arrive((f"r{number}", tokens, slo_ns, draw.choice([1, 1, 4])))
        number += 1
        engine.step()
        for _ in range(draw.randint(0, 2)):
            if engine.executing is not None:
                held.let_go(engine.executing)
                engine.step()
        alive = [each for each in engine.scheduler._book.requests if not each.ended]
        wanted = draw.choice(["nobody", "waiting", "executing", "preempted", "decoding"])
        victims = [each for each in alive if each.stand.value == wanted] or (alive if len(alive) > 6 else [])
        if victims:
            victim = draw.choice(victims)
            seen.add(victim.stand.value)
            left += 1
            engine.cancel(victim.request.request_id)
            engine.step()
    held.open()
    engine.drain()
    engine.executor.close()
    engine.check_baseline()
    engine.check_replay()
    report = engine.scheduler.report()
    assert (report.rejected, report.failed_requests) == (0, 0)
    assert report.cancelled_requests + report.completed_requests == number
    assert report.cancelled_requests >= 0.9 * aborts  # the others ended before their abort was taken
    assert len(engine.completed) <= report.completed_requests
    assert stands <= seen

"""Predictors, clocks and memory as bad as they can be, in a real engine whose ledgers are checked after every call."""

import math
import random
import time

import pytest

from engine.core.clock import NS_PER_S
from engine.scheduling.driver import Driver
from engine.scheduling.predictors.polynomial import PolynomialPredictor
from engine.serving.settings import EngineSettings
from engine.torch_backend.clock import MonotonicClock
from tests.serving.channel_client import ChannelClient, engine_and_client
from tests.serving.faulty_instance import checked

HOUR_NS = 3600 * NS_PER_S
SLOS_NS = (None, 1, NS_PER_S // 100, NS_PER_S, 1000 * NS_PER_S)


@pytest.fixture(autouse=True)
def _ledgers_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Driver, "step", checked(Driver.step))


def send_mixed(client: ChannelClient, count: int, seed: int, leaving: bool = False) -> list[str]:
    """Requests of mixed sizes and SLOs; with `leaving`, every third is cancelled at some moment."""
    draw = random.Random(seed)
    ids = []
    for number in range(count):
        ids.append(client.generate("mixed", draw.randint(1, 600), draw.randint(1, 4), draw.choice(SLOS_NS)))
        if leaving and number % 3 == 2:
            time.sleep(draw.choice((0.0, 0.002)))
            client.cancel(draw.choice(ids))
    return ids


@pytest.mark.parametrize("estimate", [math.nan, -1e9, math.inf, ValueError("no idea")], ids=str)
def test_a_predictor_that_makes_no_sense_hurts_nobody(monkeypatch: pytest.MonkeyPatch, estimate: object) -> None:
    def estimate_ns(self: PolynomialPredictor, work: object) -> object:
        if isinstance(estimate, ValueError):
            raise estimate
        return estimate

    monkeypatch.setattr(PolynomialPredictor, "estimate_ns", estimate_ns)
    with engine_and_client(EngineSettings(model="cpu_tiny", kv_blocks=200)) as (engine, client):
        ids = send_mixed(client, 20, seed=2)
        client.wait()
    assert [client.outcome[each] for each in ids] == ["finished"] * 20
    assert engine.scheduler.snapshot(False).report.predictions_clamped > 0


@pytest.mark.parametrize("jumps_ns", [(HOUR_NS,), (HOUR_NS, -HOUR_NS), (-HOUR_NS,)], ids=["on", "to and fro", "back"])
def test_a_clock_that_jumps_costs_no_request_and_no_memory(
    monkeypatch: pytest.MonkeyPatch, jumps_ns: tuple[int, ...]
) -> None:
    draw, offset_ns, asked = random.Random(3), 0, 0

    def now_ns(self: MonotonicClock) -> int:
        nonlocal offset_ns, asked
        asked += 1
        if asked % 7 == 0:
            offset_ns += draw.choice(jumps_ns)
        return time.monotonic_ns() + offset_ns

    with engine_and_client(EngineSettings(model="cpu_tiny", kv_blocks=200)) as (engine, client):
        # Not from the start: the warm-up fits the predictor, and a test of its own has mad ones.
        monkeypatch.setattr(MonotonicClock, "now_ns", now_ns)
        ids = send_mixed(client, 60, seed=4, leaving=True)
        client.wait()
    stayed = [each for each in ids if each not in client.left]
    assert len(stayed) >= 40
    assert {client.outcome[each] for each in stayed} == {"finished"}
    assert asked > 3 * 7
    report = engine.scheduler.snapshot(False).report
    assert all(sample >= 0 for sample in (*report.blocking_ns, *report.arrival_to_decision_ns))


def test_a_kv_pool_of_one_request_serves_one_after_the_other_and_refuses_what_never_fits() -> None:
    tokens, blocks = 300, 19
    with engine_and_client(EngineSettings(model="cpu_tiny", kv_blocks=blocks)) as (engine, client):
        ids = [client.generate("fits", tokens, 4, slo_ns) for slo_ns in SLOS_NS * 3]
        too_large = client.generate("too large", blocks * 16, 1, NS_PER_S)
        for leaving in ids[::4]:
            client.cancel(leaving)
        client.wait()
    assert client.outcome[too_large] == "a prompt of 304 tokens and 1 to generate exceed the limit of 304 tokens"
    ended = [client.outcome[each] for each in ids if each in client.outcome]
    assert len(ended) >= len(ids) - len(ids[::4])
    assert set(ended) == {"finished"}
    assert engine.scheduler.snapshot(False).report.rejected == 1

"""E09: aborts in any state leave nothing behind. The engine runs in this process, spoken to over its channel."""

import random
import time
from collections import Counter

import pytest

from engine.serving.running_engine import RunningEngine
from engine.serving.settings import EngineSettings
from tests.serving.channel_client import ChannelClient, engine_and_client

ABORTS = 500
MOST_OPEN = 6
SETTINGS = EngineSettings(model="cpu_tiny", kv_blocks=100, token_bound=200)


@pytest.mark.parametrize("seed", [0])
def test_e09_500_aborts_in_random_states_leave_no_kv(seed: int) -> None:
    with engine_and_client(SETTINGS) as (engine, client):
        states = abort_at_random(engine, client, random.Random(seed))
    report = engine.scheduler.snapshot(False).report
    assert ABORTS <= client.ended["cancelled"] <= ABORTS + MOST_OPEN
    assert client.ended["failed"] == client.ended["rejected"] == 0
    # A request may have ended while its cancellation was on the way; those open at the end are cancelled too.
    assert ABORTS * 0.5 < report.cancelled_requests <= ABORTS + MOST_OPEN
    assert client.ended["finished"] > 0
    assert report.preemptions > 0
    assert set(states) == {"waiting", "executing", "preempted", "decoding"}, states


def abort_at_random(engine: RunningEngine, client: ChannelClient, chance: random.Random) -> Counter[str]:
    """Open and abort until 500 were aborted; how often each kind of live work was there at an abort."""
    seen: Counter[str] = Counter()
    while client.ended["cancelled"] < ABORTS:
        if len(client.open) < chance.randint(1, MOST_OPEN):
            if chance.random() < 0.5:
                client.generate("long", chance.randint(300, 900), chance.choice((1, 20)), None)
            else:
                client.generate(
                    "short", chance.randint(1, 60), chance.choice((1, 1, 30)), chance.choice((10**10, 10**7))
                )
            continue
        let_it_move(engine, chance.randint(0, 3))
        live = engine.scheduler.snapshot(False).live
        for state in ("waiting", "executing", "preempted", "decoding"):
            seen[state] += getattr(live, state) > 0
        client.cancel(chance.choice(list(client.open) or [""]))
    for request_id in list(client.open):
        client.cancel(request_id)
    return +seen


def let_it_move(engine: RunningEngine, decisions: int) -> None:
    """Wait for so many scheduling rounds, or for a moment."""
    wanted = engine.scheduler.snapshot(False).report.decisions + decisions
    end_s = time.monotonic() + 0.05
    while engine.scheduler.snapshot(False).report.decisions < wanted and time.monotonic() < end_s:
        time.sleep(0.0005)

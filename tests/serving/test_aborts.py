"""E09: aborts in any state leave nothing behind. The engine runs in this process, spoken to over its channel."""

import random
import socket
import threading
import time
from collections import Counter
from typing import Any

import pytest

from engine.serving.channel import BlockingChannel, pack_token_ids
from engine.serving.running_engine import RunningEngine, build
from engine.serving.settings import EngineSettings
from tests.serving.server_process import eventually

ABORTS = 500
MOST_OPEN = 6
SETTINGS = EngineSettings(model="cpu_tiny", kv_blocks=100, token_bound=200)


class Client:
    """Speaks to an engine over its channel and keeps the requests that are open, by kind."""

    def __init__(self, channel: BlockingChannel) -> None:
        self.channel = channel
        self.open: dict[str, str] = {}
        self.sent = 0
        self.ended: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def generate(self, kind: str, prompt_tokens: int, max_tokens: int, ttft_slo_ns: int | None) -> None:
        self.sent += 1
        request_id = f"r{self.sent}"
        with self._lock:
            self.open[request_id] = kind
        header = {
            "kind": "generate",
            "request_id": request_id,
            "arrived_at_ns": time.monotonic_ns(),
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "temperature": 0.0,
            "seed": None,
            "ttft_slo_ns": ttft_slo_ns,
            "tbt_slo_ns": None,
            "task": kind,
        }
        self.channel.send(header, pack_token_ids([self.sent % 500] * prompt_tokens))

    def cancel(self, request_id: str) -> None:
        """Cancel a request, unless its end came first."""
        with self._lock:
            if self.open.pop(request_id, None) is None:
                return
            self.ended["cancelled"] += 1
        self.channel.send({"kind": "cancel", "request_id": request_id})

    def _read(self) -> None:
        while (frame := self.channel.receive()) is not None:
            self._take(frame[0])

    def _take(self, header: dict[str, Any]) -> None:
        with self._lock:
            if header["kind"] == "outputs":
                for request_id, _, finish_reason in header["outputs"]:
                    if finish_reason and self.open.pop(request_id, None):
                        self.ended["finished"] += 1
            elif header["kind"] in ("rejected", "failed"):
                self.ended[header["kind"]] += 1
                self.open.pop(header["request_id"], None)


@pytest.mark.parametrize("seed", [0])
def test_e09_500_aborts_in_random_states_leave_no_kv(seed: int) -> None:
    chance = random.Random(seed)
    ours, theirs = (BlockingChannel(end) for end in socket.socketpair())
    with build(SETTINGS, theirs) as engine:
        reader = threading.Thread(target=lambda: engine.intake.serve(theirs.receive()), daemon=True)
        driver = threading.Thread(target=engine.run, daemon=True)
        reader.start()
        driver.start()
        client = Client(ours)
        states = abort_at_random(engine, client, chance)
        eventually(lambda: engine.executor.cache.free_blocks == SETTINGS.kv_blocks, "all KV blocks are free")
        eventually(lambda: engine.scheduler.snapshot(False).live.kv_blocks_free == SETTINGS.kv_blocks, "and known free")
        # The token lists of the last aborted go when the driver waits again.
        eventually(lambda: not engine.executor._requests, "no tokens are kept")
        ours.close()
        reader.join()
        engine.stop()
        driver.join()
        engine.scheduler.check()
        engine.executor.check()
        snapshot = engine.scheduler.snapshot(False)
    assert ABORTS <= client.ended["cancelled"] <= ABORTS + MOST_OPEN
    assert client.ended["failed"] == client.ended["rejected"] == 0
    live = snapshot.live
    assert (live.waiting, live.executing, live.preempted, live.decoding, live.activation_bytes) == (0, 0, 0, 0, 0)
    # A request may have ended while its cancellation was on the way; those open at the end are cancelled too.
    assert ABORTS * 0.5 < snapshot.report.cancelled_requests <= ABORTS + MOST_OPEN
    assert client.ended["finished"] > 0
    assert snapshot.report.preemptions > 0
    assert set(states) == {"waiting", "executing", "preempted", "decoding"}, states


def abort_at_random(engine: RunningEngine, client: Client, chance: random.Random) -> Counter[str]:
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

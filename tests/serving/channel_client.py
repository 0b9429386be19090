"""An engine in this process, spoken to over its channel as the HTTP process does."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.serving.channel import BlockingChannel, pack_token_ids
from engine.serving.running_engine import RunningEngine, build
from engine.serving.settings import EngineSettings
from tests.serving.server_process import eventually


class ChannelClient:
    """Keeps the requests that are open, by kind, and how the others ended: "finished", or the engine's reason."""

    def __init__(self, channel: BlockingChannel) -> None:
        self.channel = channel
        self.open: dict[str, str] = {}
        self.sent = 0
        self.ended: Counter[str] = Counter()
        self.outcome: dict[str, str] = {}
        self.left: set[str] = set()
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def generate(self, kind: str, prompt_tokens: int, max_tokens: int, ttft_slo_ns: int | None, token: int = -1) -> str:
        """Send a request of one token, repeated (-1: another one each time); its id."""
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
        token = self.sent % 500 if token < 0 else token
        self.channel.send(header, pack_token_ids([token] * prompt_tokens))
        return request_id

    def cancel(self, request_id: str) -> None:
        """Cancel a request, unless its end came first."""
        with self._lock:
            if self.open.pop(request_id, None) is None:
                return
            self.ended["cancelled"] += 1
            self.left.add(request_id)
        self.channel.send({"kind": "cancel", "request_id": request_id})

    def wait(self) -> None:
        """Until every request has ended."""
        eventually(lambda: not self.open, "all requests have ended")

    def _read(self) -> None:
        while (frame := self.channel.receive()) is not None:
            self._take(frame[0])

    def _take(self, header: dict[str, Any]) -> None:
        with self._lock:
            if header["kind"] == "outputs":
                for request_id, _, finish_reason in header["outputs"]:
                    if finish_reason and self.open.pop(request_id, None):
                        self.ended["finished"] += 1
                        self.outcome[request_id] = "finished"
            elif header["kind"] in ("rejected", "failed"):
                self.ended[header["kind"]] += 1
                self.outcome[header["request_id"]] = header["reason"]
                self.open.pop(header["request_id"], None)


@contextmanager
def engine_and_client(settings: EngineSettings) -> Iterator[tuple[RunningEngine, ChannelClient]]:
    """A running engine. At the end: nothing is held, nothing is kept, and the ledgers' checks pass."""
    ours, theirs = (BlockingChannel(end) for end in socket.socketpair())
    with build(settings, theirs) as engine:
        reader = threading.Thread(target=lambda: engine.intake.serve(theirs.receive()), daemon=True)
        driver = threading.Thread(target=engine.run, daemon=True)
        reader.start()
        driver.start()
        yield engine, ChannelClient(ours)
        eventually(lambda: engine.executor.cache.free_blocks == settings.kv_blocks, "all KV blocks are free")
        eventually(lambda: engine.scheduler.snapshot(False).live.kv_blocks_free == settings.kv_blocks, "and known free")
        # The token lists of the last aborted go when the driver waits again.
        eventually(lambda: not engine.executor._requests, "no tokens are kept")
        ours.close()
        reader.join()
        engine.stop()
        driver.join()
        engine.scheduler.check()
        engine.executor.check()
        live = engine.scheduler.snapshot(False).live
        assert (live.waiting, live.executing, live.preempted, live.decoding, live.activation_bytes) == (0, 0, 0, 0, 0)

"""Many clients at a time, of every kind, while instances are killed: every stream ends, and nothing is left."""

import os
import random
import signal
import threading
from pathlib import Path

from tests.serving import fake_instance as fake
from tests.serving.proxy_process import ProxyProcess, running_proxy
from tests.serving.server_process import eventually

KINDS = (50, 51, 52, fake.HOLD_PREFILL, fake.HOLD_SEND, fake.HOLD_DECODE, fake.HOLD_STREAM, fake.FAIL_PREFILL,
         fake.FAIL_SEND, fake.FAIL_DECODE, fake.FAIL_STREAM, fake.HOLD_ON_PREFILL_0, fake.HOLD_ON_DECODE_0)  # fmt: skip
HOLDING = (fake.HOLD_PREFILL, fake.HOLD_SEND, fake.HOLD_DECODE, fake.HOLD_STREAM, fake.HOLD_ON_PREFILL_0,
           fake.HOLD_ON_DECODE_0)  # fmt: skip


def client(proxy: ProxyProcess, seed: int, ends: list[str]) -> None:
    """One that leaves where its request would hold; else it reads to the end."""
    draw = random.Random(seed)
    what = draw.choice(KINDS)
    stream = proxy.begin(what, max_tokens=draw.choice([1, 2, 6]), prompt_tokens=draw.choice([1, 200, 700]))
    if what in HOLDING:
        threading.Event().wait(draw.random() / 5)  # somewhere on its way
        stream.leave()
        ends.append("left")
        return
    event = stream.event()
    if "error" in event:
        ends.append(f"{event['error']['code']}")
        return
    rest = stream.rest()
    ends.append("failed" if any("error" in each for each in rest[:-1]) else "done")


def test_a_storm_leaves_nothing(tmp_path: Path) -> None:
    draw = random.Random(7)
    arguments = ["--prefill-instances", "2", "--decode-instances", "2", "--routing", "least_predicted_slack"]
    with running_proxy(tmp_path, arguments) as proxy:
        ends: list[str] = []
        for wave in range(5):
            clients = [
                threading.Thread(target=client, args=(proxy, 100 * wave + i, ends), daemon=True) for i in range(16)
            ]
            for each in clients:
                each.start()
            os.kill(draw.choice(list(proxy.pids().values())), signal.SIGKILL)
            for each in clients:
                each.join(120)
            eventually(lambda: len(proxy.pids()) == 4 and proxy.healthy(), "all instances serve again", 120)
        proxy.check_nothing_left()
        assert len(ends) == 80
        assert {"left", "done", "failed"} <= set(ends), ends
        assert set(ends) <= {"left", "done", "failed", "500", "503"}, ends
        assert proxy.server.complete([50], max_tokens=3)[0] == 200

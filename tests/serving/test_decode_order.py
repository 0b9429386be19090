"""Decode steps with deadlines of their own, on a real engine: they pause a long prefill, and it still ends."""

import http.client
import json
import threading
from pathlib import Path
from typing import Any

from engine.core.events import Completion
from engine.scheduling.decision_log import read
from tests.serving.server_process import LONG_S, REAL, ServerProcess, eventually, running

LONG = list(range(2, 502)) * 12
LATER_TOKENS = 5


class Chat:
    """A stream of which a token is due long after it becomes urgent, whatever else the machine does."""

    def __init__(self, server: ServerProcess) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LONG_S)
        body = {
            "prompt": [5] * 8,
            "max_tokens": 1 + LATER_TOKENS,
            "ignore_eos": True,
            "stream": True,
            "ttft_slo_s": 100,
            "tbt_slo_s": 20,
        }
        self._connection.request("POST", "/v1/completions", json.dumps(body))
        self._response = self._connection.getresponse()

    def token(self) -> None:
        while not (line := self._response.readline()).startswith(b"data: {"):
            assert line == b"\n", line


def test_steps_pause_a_long_prefill(deep_flags: list[str], tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    # Urgent a fifth of a second after the last token.
    flags = ["--decode-order", "by_deadline", "--decode-reserve", "0.99", "--decision-log", str(log)]
    with running([*deep_flags, *flags], REAL) as server:
        server.call("POST", "/report/reset")
        chat = Chat(server)
        chat.token()
        answers: list[tuple[int, Any]] = []
        prefill = threading.Thread(
            target=lambda: answers.append(server.complete(LONG, max_tokens=1, ttft_slo_s=1000)), daemon=True
        )
        prefill.start()
        for _ in range(LATER_TOKENS):
            chat.token()
        prefill.join(LONG_S)
        assert answers[0][0] == 200
        assert server.report()["preemptions"] >= 1
        eventually(lambda: server.state()["kv_blocks_free"] == server.state()["kv_blocks_total"], "all is given back")
    # Once the long one is done the chat's last token is long out, too: the steps did not wait for the prefill.
    _, calls = read(log.read_text().splitlines())
    ended = [event for call in calls for event in call.events if isinstance(event, Completion)]
    assert [len(event.outputs) for event in ended] == [1] * (1 + LATER_TOKENS + 1)
    assert ended[-1].outputs[0].finish_reason is not None
    assert ended[-1].outputs[0].request_id not in {event.outputs[0].request_id for event in ended[:-1]}

"""Decode steps with deadlines of their own, on a real engine: they pause a long prefill, and it still ends."""

import http.client
import json
import threading
from typing import Any

from tests.serving.server_process import REAL, ServerProcess, eventually, running

LONG = list(range(2, 502)) * 12
LATER_TOKENS = 5


class Chat:
    """A stream of which a token is due long after it becomes urgent, whatever else the machine does."""

    def __init__(self, server: ServerProcess) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
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


def test_steps_pause_a_long_prefill(deep_flags: list[str]) -> None:
    # Urgent a fifth of a second after the last token.
    with running([*deep_flags, "--decode-order", "by_deadline", "--decode-reserve", "0.99"], REAL) as server:
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
        assert not answers, "the steps did not wait for the prefill"
        prefill.join(120)
        assert answers[0][0] == 200
        assert server.report()["preemptions"] >= 1
        eventually(lambda: server.state()["kv_blocks_free"] == server.state()["kv_blocks_total"], "all is given back")

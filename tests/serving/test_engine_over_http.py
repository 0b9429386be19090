"""Real servers, real engines, small models: what a client sees of scheduling, and that nothing leaks."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serving.server_process import REAL, ServerProcess, eventually, running

LONG = list(range(2, 502)) * 12
SHORT = [5] * 32


@pytest.fixture(scope="module")
def server(deep_flags: list[str]) -> Iterator[ServerProcess]:
    with running(deep_flags, REAL) as started:
        yield started
        state = started.state()
        assert state["kv_blocks_free"] == state["kv_blocks_total"], state
        assert state["activation_bytes"] == 0, state


@pytest.fixture(autouse=True)
def _at_rest(server: ServerProcess) -> Iterator[None]:
    server.call("POST", "/report/reset")
    yield
    eventually(lambda: at_rest(server), "the engine comes to rest")


def at_rest(server: ServerProcess) -> bool:
    state = server.state()
    return state["open_requests"] == 0 and state["kv_blocks_free"] == state["kv_blocks_total"]


class InOrder:
    """Requests in threads, and the order they ended in."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.ended: list[str] = []
        self._threads: list[threading.Thread] = []

    def send(self, name: str, prompt: list[int], **fields: Any) -> None:
        thread = threading.Thread(target=self._run, args=(name, prompt, fields), daemon=True)
        thread.start()
        self._threads.append(thread)

    def wait(self) -> list[str]:
        for thread in self._threads:
            thread.join()
        return self.ended

    def _run(self, name: str, prompt: list[int], fields: dict[str, Any]) -> None:
        status, body = self.server.complete(prompt, max_tokens=1, temperature=0, **fields)
        assert status == 200, body
        self.ended.append(name)


def executing(server: ServerProcess) -> bool:
    return server.state()["executing"] == 1


def test_a_greedy_answer_is_the_same_each_time_and_streamed(server: ServerProcess) -> None:
    body = {"prompt": SHORT, "max_tokens": 6, "temperature": 0, "ignore_eos": True}
    first = server.call("POST", "/v1/completions", body)[1]
    again = server.call("POST", "/v1/completions", body)[1]
    tokens = first["choices"][0]["token_ids"]
    assert len(tokens) == 6
    assert again["choices"][0]["token_ids"] == tokens
    *chunks, usage, _ = server.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}})
    assert [chunk["choices"][0]["token_ids"] for chunk in chunks] == [[token] for token in tokens]
    assert usage["usage"] == {"prompt_tokens": 32, "completion_tokens": 6, "total_tokens": 38}


def test_a_seed_fixes_a_sampled_answer(server: ServerProcess) -> None:
    def sampled(seed: int) -> list[int]:
        body = server.complete(SHORT, max_tokens=12, temperature=1.0, seed=seed, ignore_eos=True)[1]
        return list(body["choices"][0]["token_ids"])

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)


def test_text_and_chat_reach_the_model(server: ServerProcess) -> None:
    status, body = server.complete("hello", max_tokens=2, ignore_eos=True)
    assert (status, body["usage"]["prompt_tokens"]) == (200, 5)
    chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "ignore_eos": True}
    status, body = server.call("POST", "/v1/chat/completions", chat)
    assert (status, body["usage"]["completion_tokens"]) == (200, 2)


def test_the_limits_are_the_models(server: ServerProcess) -> None:
    status, body = server.call("GET", "/v1/models")
    assert body["data"][0]["max_model_len"] == 8192
    status, body = server.complete([1] * 8192, max_tokens=1)
    assert status == 400
    assert "8192 tokens and 1 to generate are over the limit of 8192" in body["error"]["message"]
    status, body = server.complete([512])
    assert "token id 512, the model's go from 0 to 511" in body["error"]["message"]


def test_e01_e02_a_short_prompt_overtakes_a_long_one_that_executes(server: ServerProcess) -> None:
    requests = InOrder(server)
    requests.send("long", LONG, ttft_slo_s=10_000)
    eventually(lambda: executing(server), "the long prefill executes")
    requests.send("short", SHORT, ttft_slo_s=1000)
    assert requests.wait() == ["short", "long"]
    report = server.report()
    assert report["preemptions"] == 1
    assert len(report["blocking_ns"]) == 1
    assert report["completed_requests"] == 2


def test_e01_twenty_short_prompts_do_not_wait_for_a_long_one(server: ServerProcess) -> None:
    requests = InOrder(server)
    requests.send("long", LONG, ttft_slo_s=10_000)
    eventually(lambda: executing(server), "the long prefill executes")
    for n in range(20):
        requests.send(f"short {n}", SHORT, ttft_slo_s=1000)
    assert requests.wait()[-1] == "long"
    report = server.report()
    assert report["completed_requests"] == 21
    assert report["preemptions"] >= 1
    # Stopped at operators: all pauses together cost less than the long prefill, the price of one without them.
    assert sum(report["blocking_ns"]) < 0.5 * report["executed_ns"]


def test_waiting_prompts_run_by_deadline_not_by_arrival(server: ServerProcess) -> None:
    requests = InOrder(server)
    requests.send("executing", LONG, ttft_slo_s=1000)
    eventually(lambda: executing(server), "the long prefill executes")
    # Over the token bound: no batch joins them.
    for name, due_s in (("last", 9000), ("third", 7000), ("second", 5000)):
        before = server.state()["open_requests"]
        requests.send(name, [7] * 2100, ttft_slo_s=due_s)
        eventually(lambda n=before: server.state()["open_requests"] == n + 1, "it waits")
    assert requests.wait() == ["executing", "second", "third", "last"]
    assert server.report()["preemptions"] == 0


def test_vllm_xargs_orders_as_the_plain_field_does(server: ServerProcess) -> None:
    requests = InOrder(server)
    requests.send("long", LONG, vllm_xargs={"ttft_slo": 10_000.0})
    eventually(lambda: executing(server), "the long prefill executes")
    requests.send("short", SHORT, vllm_xargs={"ttft_slo": 1000.0, "tbt_slo": 0.1})
    assert requests.wait() == ["short", "long"]


def leave(server: ServerProcess, prompt: list[int], stream: bool) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": 64, "stream": stream}))
    return connection


def executed_whole_ns(server: ServerProcess) -> int:
    """Execution time of the long prefill where nobody leaves."""
    server.call("POST", "/report/reset")
    assert server.complete(LONG, max_tokens=1)[0] == 200
    return int(server.call("POST", "/report/reset")[1]["executed_ns"])


@pytest.mark.parametrize("stream", [False, True])
def test_e08_a_prefill_stops_when_its_client_leaves(server: ServerProcess, stream: bool) -> None:
    whole_ns = [executed_whole_ns(server)]
    connection = leave(server, LONG, stream)
    eventually(lambda: executing(server), "the prefill executes")
    connection.sock.close()
    eventually(lambda: at_rest(server), "its KV is free again")
    report = server.report()
    assert report["cancelled_requests"] == 1
    assert report["completed_requests"] == 0
    # It stopped at a boundary long before its end, as long as a whole one takes on a machine as busy as this.
    whole_ns.append(executed_whole_ns(server))
    assert report["executed_ns"] < 0.8 * max(whole_ns)


def test_clients_that_leave_while_waiting_or_decoding_leave_no_kv(server: ServerProcess) -> None:
    executing_one = leave(server, LONG, stream=True)
    eventually(lambda: executing(server), "the long prefill executes")
    waiting = [leave(server, [9] * (2100 + i), stream=True) for i in range(3)]
    eventually(lambda: server.state()["open_requests"] == 4, "three wait")
    for each in (waiting[1], executing_one, waiting[0], waiting[2]):
        each.sock.close()
    eventually(lambda: at_rest(server), "all KV is free again")
    decoding = http.client.HTTPConnection("127.0.0.1", server.port)
    body = {"prompt": SHORT, "max_tokens": 4000, "stream": True, "ignore_eos": True}
    decoding.request("POST", "/v1/completions", json.dumps(body))
    decoding.getresponse().read(20)
    decoding.sock.shutdown(socket.SHUT_RDWR)
    decoding.close()
    eventually(lambda: at_rest(server), "the decoding one is gone too")
    assert server.report()["completed_requests"] == 0


def test_metrics_of_a_real_engine(server: ServerProcess) -> None:
    pytest.importorskip("prometheus_client")
    server.complete(SHORT, max_tokens=3, ignore_eos=True)
    # The reply leaves before the blocks are back.
    eventually(lambda: server.state()["kv_blocks_free"] == server.state()["kv_blocks_total"], "KV is back")
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode().splitlines()
    connection.close()
    assert "flowprefill_completed_requests_total 1.0" in page
    assert "flowprefill_prefill_tokens_total 32.0" in page
    assert "flowprefill_kv_blocks_used 0.0" in page

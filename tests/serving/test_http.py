"""The HTTP side over a fake engine: bodies, replies, errors, limits, disconnects."""

import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from tests.serving import fake_engine
from tests.serving.server_process import ServerProcess, eventually, running

QUEUE = 4


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running(["--max-queue", str(QUEUE)]) as started:
        yield started


def sent_error(
    server: ServerProcess, status: int, path: str = "/v1/completions", **fields: object
) -> dict[str, object]:
    got, body = server.call("POST", path, fields)
    assert got == status, body
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status
    return error


def test_completion_of_token_ids(server: ServerProcess) -> None:
    status, body = server.complete([1, 2, 3], max_tokens=3, model="cpu_demo")
    assert status == 200
    assert body["object"] == "text_completion"
    assert body["model"] == "cpu_demo"
    # The fake answers 97 + (1+2+3 + i) % 26, bytes as text.
    assert body["choices"] == [
        {"index": 0, "logprobs": None, "finish_reason": "length", "token_ids": [103, 104, 105], "text": "ghi"}
    ]
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}


@pytest.mark.parametrize("prompt", ["abc", ["abc"], [97, 98, 99], [[97, 98, 99]]])
def test_the_four_forms_of_a_prompt_are_one(server: ServerProcess, prompt: object) -> None:
    status, body = server.complete(prompt)
    assert status == 200
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 16, "total_tokens": 19}
    assert body["choices"][0]["token_ids"][0] == 97 + (97 + 98 + 99) % 26


def test_stream_has_one_chunk_per_token_then_usage_then_done(server: ServerProcess) -> None:
    events = server.stream(
        "/v1/completions", {"prompt": [1], "max_tokens": 3, "stream_options": {"include_usage": True}}
    )
    *chunks, usage, done = events
    assert done == "[DONE]"
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["b", "c", "d"]
    assert [chunk["choices"][0]["token_ids"] for chunk in chunks] == [[98], [99], [100]]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "length"]
    assert [chunk["usage"] for chunk in chunks] == [None] * 3
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
    assert len({event["id"] for event in events[:-1]}) == 1


def test_stream_without_usage_asked_has_none(server: ServerProcess) -> None:
    *chunks, done = server.stream("/v1/completions", {"prompt": [1], "max_tokens": 2})
    assert done == "[DONE]"
    assert len(chunks) == 2
    assert not any("usage" in chunk for chunk in chunks)


def test_chat_whole_and_streamed(server: ServerProcess) -> None:
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_completion_tokens": 2}
    status, whole = server.call("POST", "/v1/chat/completions", body)
    assert status == 200
    assert whole["object"] == "chat.completion"
    message = whole["choices"][0]["message"]
    assert message["role"] == "assistant"
    # Without a template: "user: hi\nassistant:", a byte a token.
    assert whole["usage"]["prompt_tokens"] == len("user: hi\nassistant:")
    first, second, done = server.stream("/v1/chat/completions", body)
    assert done == "[DONE]"
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": message["content"][0]}
    assert second["choices"][0]["delta"] == {"content": message["content"][1]}


def test_chat_without_a_limit_may_fill_the_context(server: ServerProcess) -> None:
    status, body = server.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    assert status == 200
    assert body["usage"]["total_tokens"] == 1000


def test_models_and_health(server: ServerProcess) -> None:
    status, body = server.call("GET", "/v1/models")
    assert status == 200
    assert [(m["id"], m["max_model_len"]) for m in body["data"]] == [("cpu_demo", 1000)]
    assert server.call("GET", "/v1/models/cpu_demo") == (200, body["data"][0])
    status, body = server.call("GET", "/v1/models/some/folder")
    assert (status, body["error"]["param"]) == (404, "model")
    assert "model 'some/folder' is not served here" in body["error"]["message"]
    assert server.call("GET", "/health") == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"prompt": []}, "prompt", "is empty"),
        ({"prompt": ""}, "prompt", "is empty"),
        ({}, "prompt", "must be a text or a list of token ids"),
        ({"prompt": 5}, "prompt", "must be a text"),
        ({"prompt": [1, "a"]}, "prompt", "whole numbers"),
        ({"prompt": [1.0]}, "prompt", "whole numbers"),
        ({"prompt": [True]}, "prompt", "whole numbers"),
        ({"prompt": [1, 300]}, "prompt", "token id 300, the model's go from 0 to 299"),
        ({"prompt": [-1]}, "prompt", "token id -1"),
        ({"prompt": [10**30]}, "prompt", "token id 1000"),
        ({"prompt": ["a", "b"]}, "prompt", "one prompt per request, got a list of 2"),
        ({"prompt": [[1], [2]]}, "prompt", "one prompt per request"),
        ({"prompt": [[[1]]]}, "prompt", "whole numbers"),
        ({"prompt": "\ud800"}, "prompt", "surrogate"),
        ({"prompt": [1] * 990}, "prompt", "990 tokens and 16 to generate are over the limit of 1000"),
        ({"prompt": "x" * 64_001}, "prompt", "too long"),
        ({"prompt": [1], "max_tokens": 0}, "max_tokens", "between 1 and 1000, got 0"),
        ({"prompt": [1], "max_tokens": -1}, "max_tokens", "got -1"),
        ({"prompt": [1], "max_tokens": 1.5}, "max_tokens", "whole number"),
        ({"prompt": [1], "max_tokens": "1"}, "max_tokens", 'got "1"'),
        ({"prompt": [1], "max_tokens": True}, "max_tokens", "got true"),
        ({"prompt": [1], "temperature": -0.1}, "temperature", "between 0 and 2"),
        ({"prompt": [1], "temperature": float("nan")}, "temperature", "got NaN"),
        ({"prompt": [1], "seed": 2**63}, "seed", "whole number"),
        ({"prompt": [1], "stream": 1}, "stream", "must be true or false"),
        ({"prompt": [1], "ignore_eos": "yes"}, "ignore_eos", "must be true or false"),
        ({"prompt": [1], "stream_options": {"include_usage": True}}, "stream_options", "stream: true"),
        ({"prompt": [1], "stream": True, "stream_options": []}, "stream_options", "must be an object"),
        ({"prompt": [1], "n": 2}, "n", "only 1 is accepted"),
        ({"prompt": [1], "stop": ["x"]}, "stop", "not supported"),
        ({"prompt": [1], "echo": True}, "echo", "only false is accepted"),
        ({"prompt": [1], "logprobs": 0}, "logprobs", "not supported"),
        ({"prompt": [1], "ttft_slo_s": 0}, "ttft_slo_s", "between 1e-06 and 1e+06, got 0"),
        ({"prompt": [1], "ttft_slo_s": -1}, "ttft_slo_s", "got -1"),
        ({"prompt": [1], "ttft_slo_s": float("nan")}, "ttft_slo_s", "got NaN"),
        ({"prompt": [1], "ttft_slo_s": float("inf")}, "ttft_slo_s", "got Infinity"),
        ({"prompt": [1], "ttft_slo_s": "1"}, "ttft_slo_s", "must be a number"),
        ({"prompt": [1], "tbt_slo_s": True}, "tbt_slo_s", "must be a number"),
        ({"prompt": [1], "tbt_slo_s": 10**400}, "tbt_slo_s", "must be a number"),
        ({"prompt": [1], "task": 3}, "task", "must be a string"),
        ({"prompt": [1], "task": "x" * 65}, "task", "at most 64"),
        ({"prompt": [1], "vllm_xargs": 3}, "vllm_xargs", "must be an object"),
        ({"prompt": [1], "vllm_xargs": {"ttft_slo": "x"}}, "vllm_xargs.ttft_slo", "must be a number"),
        ({"prompt": [1], "model": 3}, "model", "must be a string"),
    ],
)
def test_a_bad_field_is_named(server: ServerProcess, fields: dict[str, object], field: str, words: str) -> None:
    error = sent_error(server, 400, **fields)
    assert error["param"] == field
    assert str(error["message"]).startswith(field)
    assert words in str(error["message"])
    assert error["type"] == "invalid_request_error"


def test_contradicting_slos_are_refused_and_equal_ones_taken(server: ServerProcess) -> None:
    error = sent_error(server, 400, prompt=[1], ttft_slo_s=1, vllm_xargs={"ttft_slo": 2})
    assert error["message"] == "ttft_slo_s and vllm_xargs.ttft_slo contradict each other"
    assert server.complete([1], ttft_slo_s=1, vllm_xargs={"ttft_slo": 1.0, "tbt_slo": 0.1})[0] == 200


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        "hi",
        [3],
        [{"content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": [{"type": "image_url"}]}],
    ],
)
def test_bad_messages(server: ServerProcess, messages: object) -> None:
    error = sent_error(server, 400, "/v1/chat/completions", messages=messages)
    assert str(error["param"]).startswith("messages")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b'{"prompt": [1', "not valid JSON"),
        (b"[1]", "must be a JSON object, got a list of 1"),
        (b'"x"', "must be a JSON object"),
        (b'{"prompt": "\xff\xfe"}', "not valid UTF-8 (byte 12)"),
        (b'{"prompt": ' + b"[" * 100_000, "(nested too deep)"),
        (b'{"max_tokens": ' + b"9" * 5000 + b"}", "(a number has too many digits)"),
    ],
)
def test_a_body_that_is_no_json_object(server: ServerProcess, body: bytes, words: str) -> None:
    status, answer = server.call("POST", "/v1/completions", body)
    assert status == 400
    assert words in answer["error"]["message"]
    assert len(answer["error"]["message"]) < 300


def test_a_body_that_does_not_match_its_encoding(server: ServerProcess) -> None:
    status, answer = server.call("POST", "/v1/completions", b"not gzip", headers={"Content-Encoding": "gzip"})
    assert status == 400
    assert "Content-Encoding" in answer["error"]["message"]


def test_a_body_over_the_limit(server: ServerProcess) -> None:
    status, answer = server.call("POST", "/v1/completions", b'{"prompt": "' + b"x" * 2_000_000 + b'"}')
    assert status == 413
    assert "larger than the limit of 2000000 bytes" in answer["error"]["message"]


def test_unknown_fields_and_nulls_are_ignored(server: ServerProcess) -> None:
    fields = {"user": "me", "frobnicate": [1, {}], "n": None, "stop": None, "seed": None, "top_p": 1.0, "best_of": 1}
    assert server.complete([1], **fields)[0] == 200


def test_a_model_not_served_is_not_found(server: ServerProcess) -> None:
    error = sent_error(server, 404, prompt=[1], model="gpt-4")
    assert error["message"] == "model 'gpt-4' is not served here; 'cpu_demo' is"


def test_unknown_paths_and_methods_are_json_errors(server: ServerProcess) -> None:
    status, body = server.call("GET", "/nowhere")
    assert (status, body["error"]["message"]) == (404, "GET /nowhere: Not Found")
    status, body = server.call("GET", "/v1/completions")
    assert (status, body["error"]["code"]) == (405, 405)


def test_a_request_the_scheduler_refuses_is_a_503(server: ServerProcess) -> None:
    for stream in (False, True):
        error = sent_error(server, 503, prompt=[fake_engine.REJECT], stream=stream)
        assert error["message"] == "no room for it"
        assert error["type"] == "server_error"


def test_a_request_that_can_never_run_is_the_clients_mistake(server: ServerProcess) -> None:
    for stream in (False, True):
        error = sent_error(server, 400, prompt=[fake_engine.NEVER], stream=stream)
        assert (error["message"], error["type"]) == ("no room for it", "invalid_request_error")


def test_c09_a_failure_after_the_first_token_is_an_error_event(server: ServerProcess) -> None:
    token, error, done = server.stream("/v1/completions", {"prompt": [fake_engine.FAIL_AFTER_ONE], "max_tokens": 5})
    assert token["choices"][0]["token_ids"]
    assert error["error"]["message"] == "the task broke"
    assert done == "[DONE]"
    assert sent_error(server, 500, prompt=[fake_engine.FAIL_AFTER_ONE], max_tokens=5)["message"] == "the task broke"


def leave_after_sending(server: ServerProcess, body: dict[str, object]) -> socket.socket:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/v1/completions", json.dumps(body))
    return connection.sock


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_closes_its_sending_side_counts_as_gone(server: ServerProcess, stream: bool) -> None:
    """As docs/architecture.md says: to the server, it looks like a client that closed both sides."""
    server.call("POST", "/report/reset")
    half = leave_after_sending(server, {"prompt": [fake_engine.HOLD], "stream": stream})
    eventually(lambda: server.state()["kv_blocks_free"] == fake_engine.KV_BLOCKS - 1, "the engine has the request")
    half.shutdown(socket.SHUT_WR)
    assert half.recv(1) == b"", "the connection ends without an answer"
    half.close()
    eventually(lambda: server.report()["cancelled_requests"] == 1, "the engine hears of it")
    assert server.state()["kv_blocks_free"] == fake_engine.KV_BLOCKS


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_its_request(server: ServerProcess, stream: bool) -> None:
    server.call("POST", "/report/reset")
    left = leave_after_sending(server, {"prompt": [fake_engine.HOLD], "stream": stream})
    eventually(lambda: server.state()["kv_blocks_free"] == fake_engine.KV_BLOCKS - 1, "the engine has the request")
    left.close()
    eventually(lambda: server.report()["cancelled_requests"] == 1, "the engine hears of it")
    state = server.state()
    assert state["kv_blocks_free"] == fake_engine.KV_BLOCKS
    assert state["open_requests"] == 0


def test_a_full_server_says_so(server: ServerProcess) -> None:
    held = [leave_after_sending(server, {"prompt": [fake_engine.HOLD]}) for _ in range(QUEUE)]
    eventually(lambda: server.state()["open_requests"] == QUEUE, "all are open")
    assert sent_error(server, 503, prompt=[1])["message"] == f"the server is full: {QUEUE} requests are open"
    for each in held:
        each.close()
    eventually(lambda: server.state()["open_requests"] == 0, "none is open")
    assert server.complete([1])[0] == 200


def test_metrics_page(server: ServerProcess) -> None:
    pytest.importorskip("prometheus_client")
    server.call("POST", "/report/reset")
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    page = response.read().decode()
    connection.close()
    assert response.status == 200
    for line in (
        "flowprefill_kv_blocks_free 100.0",
        "flowprefill_kv_blocks_used 0.0",
        "flowprefill_open_requests 0.0",
        "flowprefill_preemptions_total 0.0",
        'flowprefill_blocking_seconds_bucket{le="+Inf"} 0.0',
    ):
        assert line in page.splitlines(), line
    assert "flowprefill_ttft_seconds_count" in page


def test_report_resets(server: ServerProcess) -> None:
    # Whatever ran before: after a reset the fake counts from zero.
    server.call("POST", "/report/reset")
    status, report = server.call("POST", "/report/reset")
    assert status == 200
    assert report["preemptions"] == 0
    assert report["blocking_ns"] == []

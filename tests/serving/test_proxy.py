"""The proxy over fake instances, through real HTTP and real processes: every phase, and every way to break in it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import fake_instance as fake
from tests.serving.proxy_process import FAKE_PROXY, ProxyProcess, running_proxy
from tests.serving.server_process import alive, eventually, run

PLAIN = 50


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """Two prefill and two decode instances, shared by tests that leave them as they were."""
    folder = tmp_path_factory.mktemp("kv")
    with running_proxy(folder, ["--prefill-instances", "2", "--decode-instances", "2"]) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_is_left(proxy: ProxyProcess) -> Iterator[None]:
    yield
    eventually(proxy.healthy, "all roles serve again")
    proxy.check_nothing_left()
    status, body = proxy.server.complete([PLAIN], max_tokens=3)
    assert status == 200, body


def token_ids(events: list[Any]) -> list[int]:
    return [token for event in events[:-1] for token in event["choices"][0]["token_ids"]]


def test_both_instances_of_a_request_make_one_stream(proxy: ProxyProcess) -> None:
    events = proxy.begin(PLAIN).rest()
    first = 97 + (PLAIN + 300) % 26
    assert token_ids(events) == [97 + (first - 97 + i) % 26 for i in range(5)]
    assert len({event["id"] for event in events[:-1]}) == 1
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert events[-1] == "[DONE]"


def test_an_answer_that_is_no_stream_has_all_tokens(proxy: ProxyProcess) -> None:
    proxy.server.call("POST", "/report/reset")
    status, body = proxy.server.complete([PLAIN], max_tokens=4)
    assert (status, body["usage"]["completion_tokens"]) == (200, 4)
    report = proxy.server.report()
    assert (report["kv_sent"], report["kv_received"], report["completed_requests"]) == (1, 1, 1)


def test_a_request_for_one_token_is_not_handed_over(proxy: ProxyProcess) -> None:
    proxy.server.call("POST", "/report/reset")
    assert proxy.server.complete([PLAIN], max_tokens=1)[0] == 200
    assert proxy.server.report()["kv_sent"] == 0


@pytest.mark.parametrize(
    ("what", "events"),
    [(fake.HOLD_PREFILL, 0), (fake.HOLD_SEND, 1), (fake.HOLD_DECODE, 1), (fake.HOLD_STREAM, 2)],
    ids=["prefill", "hand-over", "before the second token", "in the stream"],
)
def test_a_client_leaves(proxy: ProxyProcess, what: int, events: int) -> None:
    stream = proxy.begin(what)
    for _ in range(events):
        stream.event()
    eventually(lambda: proxy.server.state()["handing_over"] == 1, "the request is where it holds")
    stream.leave()


@pytest.mark.parametrize(
    ("what", "tokens", "reason"),
    [
        (fake.FAIL_SEND, 1, "no room for the KV"),
        (fake.FAIL_DECODE, 1, "the KV cannot be read"),
        (fake.FAIL_STREAM, 2, "a decode step broke"),
    ],
)
def test_what_fails_behind_the_first_token_ends_the_stream(
    proxy: ProxyProcess, what: int, tokens: int, reason: str
) -> None:
    events = proxy.begin(what).rest()
    assert len(events) == tokens + 2
    assert events[-2]["error"]["message"] == reason


def test_what_fails_before_it_is_a_plain_error(proxy: ProxyProcess) -> None:
    assert proxy.server.complete([fake.FAIL_PREFILL], max_tokens=4)[0] == 500


def test_a_prefill_instance_is_killed_before_the_first_token(proxy: ProxyProcess) -> None:
    """Its requests begin anew on the other one."""
    streams = [proxy.begin(fake.HOLD_ON_PREFILL_0) for _ in range(2)]  # one each, by turns
    eventually(lambda: proxy.server.state()["handing_over"] == 1, "one of them is held")
    proxy.kill("prefill-0")
    for stream in streams:
        assert len(token_ids(stream.rest())) == 5


def test_a_prefill_instance_is_killed_before_the_kv_has_left(proxy: ProxyProcess) -> None:
    stream = proxy.begin(fake.HOLD_SEND)
    stream.event()
    eventually(lambda: proxy.server.state()["handing_over"] == 1, "the request waits for its send")
    for name in ("prefill-0", "prefill-1"):
        proxy.kill(name)
    events = stream.rest()
    assert "the engine failed" in events[0]["error"]["message"]


def test_a_decode_instance_is_killed_before_its_first_token(proxy: ProxyProcess) -> None:
    """The KV is still there: the other instance receives it."""
    streams = [proxy.begin(fake.HOLD_ON_DECODE_0) for _ in range(2)]
    eventually(lambda: proxy.server.state()["handing_over"] == 1, "one of them is held")
    proxy.kill("decode-0")
    for stream in streams:
        assert len(token_ids(stream.rest())) == 5


def test_a_decode_instance_is_killed_in_the_stream(proxy: ProxyProcess) -> None:
    streams = [proxy.begin(fake.HOLD_STREAM) for _ in range(2)]
    for stream in streams:
        assert stream.event()["choices"]
        assert stream.event()["choices"]
    proxy.kill("decode-0")
    proxy.kill("decode-1")
    for stream in streams:
        events = stream.rest()
        assert "the engine failed" in events[0]["error"]["message"]


def test_a_request_that_kills_is_not_tried_for_ever(proxy: ProxyProcess) -> None:
    before = proxy.pids()
    status, body = proxy.server.complete([fake.DIE_ON_PREFILL], max_tokens=4)
    assert status == 500
    assert "the engine failed" in body["error"]["message"]
    eventually(lambda: set(proxy.pids()) == set(before) and proxy.healthy(), "the instances are started again")


def test_a_full_decode_side_holds_requests_back_then_refuses(tmp_path: Path) -> None:
    with running_proxy(tmp_path, ["--max-waiting-for-decode", "1"]) as proxy:
        first, second = (proxy.begin(fake.HOLD_STREAM, prompt_tokens=900) for _ in range(2))  # 57 of 100 blocks each
        assert first.event()["choices"]
        assert second.event()["choices"]  # the first token needs no room there
        eventually(lambda: proxy.server.report()["kv_sent"] == 1, "one of them was sent")
        eventually(lambda: proxy.server.complete([PLAIN], max_tokens=2)[0] == 503, "the proxy refuses")
        _, body = proxy.server.complete([PLAIN], max_tokens=2)
        assert body["error"]["message"] == "the decode instances are full: 1 requests wait for room on them"
        first.leave()
        assert second.event()["choices"]
        second.leave()
        proxy.check_nothing_left()


def test_who_waits_for_an_instance_that_hangs_goes_on_when_it_does(tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir()
    with running_proxy(tmp_path / "kv", ["--", "--beats", str(tmp_path)]) as proxy:
        first, second = (proxy.begin(what, prompt_tokens=900) for what in (fake.HOLD_STREAM, PLAIN))
        for stream in (first, second):  # the decode instance has room for one of them
            assert stream.event()["choices"]
        assert first.event()["choices"]
        (tmp_path / "decode-0").write_text("an operator has not ended")
        eventually(lambda: not proxy.healthy(), "the proxy has heard that it hangs")
        first.leave()
        eventually(lambda: proxy.server.state()["open_requests"] == 1, "its room is free")
        (tmp_path / "decode-0").write_text("")
        assert len(token_ids(second.rest())) == 4
        proxy.check_nothing_left()


def test_the_proxy_ends_when_a_role_cannot_be_started_any_more(tmp_path: Path) -> None:
    (tmp_path / "once").mkdir()
    (tmp_path / "kv").mkdir()
    with running_proxy(tmp_path / "kv", ["--", "--once", str(tmp_path / "once")]) as proxy:
        stream = proxy.begin(fake.HOLD_STREAM)
        assert stream.event()["choices"]
        os.kill(proxy.pids()["prefill-0"], signal.SIGKILL)
        assert proxy.server.wait_exit() == 1


def test_a_killed_proxy_leaves_no_instance_and_no_file(tmp_path: Path) -> None:
    with running_proxy(tmp_path) as proxy:
        stream = proxy.begin(fake.HOLD_DECODE)
        assert stream.event()["choices"]
        eventually(lambda: len(proxy.files.names()) == 1, "the KV is on its way")
        pids = proxy.pids().values()
        proxy.server.process.kill()
        eventually(lambda: not any(alive(pid) for pid in pids), "the instances end")
    with running_proxy(tmp_path) as proxy:  # what is left of the dead is swept at the start
        assert proxy.files.names() == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--routing", "random"], "proxy: --routing: there is no 'random'; choose from round_robin,"),
        (["--prefill-instances", "0"], "prefill_instances must be between 1 and 64, got 0"),
        (
            ["--hand-over-folder", "/no/such/folder"],
            "proxy: --hand-over-folder /no/such/folder: cannot be used (No",
        ),
        (["--", "--refuse", "decode-0"], "proxy: --kv-blocks: too many"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str) -> None:
    status, output = run([*FAKE_PROXY, "--port", "0", *arguments])
    assert status == 2
    assert sentence in output
    assert "Traceback" not in output

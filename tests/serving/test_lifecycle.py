"""Starts, stops and deaths of the server and its engine process."""

import http.client
import json
import os
import signal
import threading

import pytest

from tests.serving import fake_engine
from tests.serving.server_process import FAKE, REAL, ServerProcess, alive, eventually, run, running


def held_reply(server: ServerProcess, body: dict[str, object]) -> tuple[threading.Thread, list[tuple[int, object]]]:
    """A request under way in a thread, and the list its reply will be put in."""
    replies: list[tuple[int, object]] = []
    thread = threading.Thread(target=lambda: replies.append(server.call("POST", "/v1/completions", body)), daemon=True)
    thread.start()
    eventually(lambda: server.state()["open_requests"] == 1, "the request is open")
    return thread, replies


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_and_its_engine(number: signal.Signals) -> None:
    with running() as server:
        child = server.child_pid()
        server.process.send_signal(number)
        assert server.wait_exit() == 0
        assert not alive(child)


def test_requests_still_open_after_the_drain_get_an_error() -> None:
    with running(["--drain-s", "0.2"]) as server:
        thread, replies = held_reply(server, {"prompt": [fake_engine.HOLD]})
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_exit() == 0
        thread.join()
        (status, body) = replies[0]
        assert status == 500
        assert "stopped" in body["error"]["message"]


def test_a_second_signal_ends_the_drain() -> None:
    with running(["--drain-s", "1000"]) as server:
        thread, _ = held_reply(server, {"prompt": [fake_engine.HOLD]})
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: server.call("GET", "/health")[1] == {"status": "stopping"}, "it is stopping")
        status, body = server.complete([1])
        assert (status, body["error"]["message"]) == (503, "the server is stopping")
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_exit() == 0
        thread.join()


def test_the_engine_killed_fails_what_is_open_and_ends_the_server() -> None:
    # A grace that a busy machine's client does not miss; the signal ends it.
    patient = (
        "import runpy; from engine.serving import http_process; http_process.FAILURE_GRACE_S = 1000;"
        "runpy.run_module('tests.serving.fake_server', run_name='__main__')"
    )
    with running(kind=["-c", patient]) as server:
        thread, replies = held_reply(server, {"prompt": [fake_engine.HOLD]})
        os.kill(server.child_pid(), signal.SIGKILL)
        thread.join()
        status, body = replies[0]
        assert status == 500
        assert body["error"]["message"] == "the engine failed: its process ended with status -9"
        status, health = server.call("GET", "/health")
        assert (status, health["status"]) == (503, "failed")
        status, body = server.complete([1])
        assert status == 500
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_exit() == 1


def test_an_engine_that_breaks_says_why() -> None:
    with running() as server:
        status, body = server.complete([fake_engine.BREAK])
        assert status == 500
        assert body["error"]["message"] == "the engine failed: the driver broke"
        assert server.wait_exit() == 1


def test_an_engine_that_exits_in_a_stream_leaves_an_error_reply() -> None:
    with running() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": [fake_engine.DIE], "stream": True}))
        response = connection.getresponse()
        assert response.status == 500
        assert b"status 3" in response.read()
        connection.close()
        assert server.wait_exit() == 1


def test_the_server_killed_leaves_no_engine() -> None:
    with running() as server:
        child = server.child_pid()
        server.process.kill()
        server.wait_exit()
        eventually(lambda: not alive(child), "the engine ends when its channel closes")


def test_a_port_in_use_is_one_sentence() -> None:
    with running() as server:
        status, output = run([*FAKE, "--port", str(server.port)])
    assert status == 2
    assert output == f"server: cannot listen on 127.0.0.1 port {server.port}: Address already in use\n"


def test_an_engine_that_refuses_its_settings_is_one_sentence() -> None:
    status, output = run([*FAKE, "--port", "0", "--", "--refuse", "model x is neither a folder nor a name"])
    assert (status, output) == (2, "server: model x is neither a folder nor a name\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "lottery"], "--policy"),
        (["--granularity", "atom"], "--granularity"),
        (["--batching", "all"], "--batching"),
        (["--preempt", "maybe"], "--preempt"),
        (["--predictor", "oracle"], "--predictor"),
        (["--batch-deadline", "tail"], "--batch-deadline"),
        (["--kv-blocks", "0"], "kv_blocks must be between 1 and "),
        (["--kv-blocks", "many"], "--kv-blocks"),
        (["--alpha", "nan"], "alpha must be between 0 and 1, got nan"),
        (["--port", "70000"], "port must be between 0 and 65535"),
        (["--server-cpu", "4000"], "--server-cpu: CPU 4000 is not available"),
        (["--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
    ],
)
def test_a_wrong_flag_is_one_sentence(arguments: list[str], words: str) -> None:
    status, output = run([*REAL, "--port", "0", *arguments])
    assert status == 2
    assert output.startswith("server: ")
    assert words in output
    assert output.count("\n") == 1


def test_without_prometheus_client_only_the_metrics_page_is_missing() -> None:
    without = (
        "import runpy, sys; sys.modules['prometheus_client'] = None;"
        "runpy.run_module('tests.serving.fake_server', run_name='__main__')"
    )
    with running(kind=["-c", without]) as server:
        status, body = server.call("GET", "/metrics")
        assert status == 501
        assert "prometheus-client, which is not installed" in body["error"]["message"]
        assert server.complete([1])[0] == 200
        assert server.state()["open_requests"] == 0


def test_pinning_the_server_leaves_the_engine_its_cpus() -> None:
    own = os.sched_getaffinity(0)
    cpu = min(own)
    with running(["--server-cpu", str(cpu)]) as server:
        assert os.sched_getaffinity(server.process.pid) == {cpu}
        assert os.sched_getaffinity(server.child_pid()) == own

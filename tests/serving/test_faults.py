"""Faults set off in a real engine, over HTTP: that request fails with a reason, the others go on, nothing leaks."""

import http.client
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import faulty_instance as fault
from tests.serving.server_process import LONG_S, ServerProcess, eventually, running

FAULTY = ("-m", "tests.serving.faulty_server")
WATCHDOG_S = 2.0
FLAGS = ("--model", "cpu_tiny", "--kv-blocks", "200", "--batching", "none", "--watchdog-s", str(WATCHDOG_S))
LONG = [5] * 900


@pytest.fixture(scope="module")
def end_of_hang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the operators that hang wait for."""
    pipe = tmp_path_factory.mktemp("faults") / "end_of_hang"
    os.mkfifo(pipe)
    return pipe


@pytest.fixture(scope="module")
def server(end_of_hang: Path) -> Iterator[ServerProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(fault.END_OF_HANG, str(end_of_hang))
        with running(FLAGS, FAULTY) as started:
            yield started
            assert started.process.poll() is None, "it lives to the end"


def others_meanwhile(server: ServerProcess, prompt: list[int], **fields: object) -> tuple[int, str]:
    """Status and message of this request, sent among others that must all succeed and leave nothing behind."""
    replies: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: replies.append(server.complete(LONG, max_tokens=3, ignore_eos=True)[0]), daemon=True
        )
        for _ in range(6)
    ]
    for thread in threads[:3]:
        thread.start()
    status, body = server.complete(prompt, **fields)
    for thread in threads[3:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == [200] * 6
    eventually(lambda: server.state()["kv_blocks_free"] == 200, "all KV blocks are free")
    state = server.state()
    assert (state["executing"], state["preempted"], state["waiting"], state["activation_bytes"]) == (0, 0, 0, 0)
    return status, body["error"]["message"]


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ([fault.BROKEN_OPERATOR] * 30, "ZeroDivisionError: the kernel gave up"),
        ([fault.NO_MEMORY] * 30, "RuntimeError: "),
        (
            [5] * (fault.BLOCKS_WITHOUT_TABLE * 16 - 1),
            "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.",
        ),
        ([fault.NO_MEMORY_FOR_TOKENS] * 30, "MemoryError: no room for a generator"),
    ],
    ids=["exception in an operator", "no memory in an operator", "no memory for KV", "no memory for its tokens"],
)
@pytest.mark.parametrize("ttft_slo_s", [0.01, 1000.0], ids=["urgent", "patient"])
def test_a_fault_fails_its_request_alone(
    server: ServerProcess, prompt: list[int], reason: str, ttft_slo_s: float
) -> None:
    failed_before = server.report()["failed_requests"]
    status, message = others_meanwhile(server, prompt, max_tokens=1, ttft_slo_s=ttft_slo_s)
    assert status == 500
    assert message.startswith(reason)
    assert "\n" not in message
    assert "frame" not in message
    # One that was never taken in is not the scheduler's to count.
    taken_in = prompt[0] != fault.NO_MEMORY_FOR_TOKENS
    assert server.report()["failed_requests"] == failed_before + taken_in


def metric(server: ServerProcess, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LONG_S)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (fault.HANG, "operator L1.attention of task "),
        (fault.HANG_WITH_INTERPRETER, "the engine process has given no sign of life for "),
    ],
    ids=["one operator", "the whole process"],
)
def test_the_watchdog_tells_a_hung_operator_and_its_end(
    server: ServerProcess, end_of_hang: Path, token: int, words: str
) -> None:
    pytest.importorskip("prometheus_client")
    eventually(lambda: server.call("GET", "/health") == (200, {"status": "ok"}), "it is well")
    stalls = metric(server, "flowprefill_stalls_total")
    replies: list[int] = []
    thread = threading.Thread(
        target=lambda: replies.append(server.complete([token] * 30, max_tokens=1)[0]), daemon=True
    )
    thread.start()
    eventually(lambda: server.call("GET", "/health")[0] == 503, "the stall shows")
    _, health = server.call("GET", "/health")
    assert health["status"] == "stalled"
    assert health["reason"].startswith(words)
    assert metric(server, "flowprefill_stalled") == 1
    end_of_hang.write_bytes(b"")
    thread.join()
    assert replies == [200]
    eventually(lambda: server.call("GET", "/health")[0] == 200, "it is well again")
    assert metric(server, "flowprefill_stalled") == 0
    if token == fault.HANG:
        assert metric(server, "flowprefill_stalls_total") == stalls + 1

"""Starts, ends and the decision log of a real engine process."""

import json
import signal
import socket
import threading
from pathlib import Path

import pytest

from engine.serving.channel import BlockingChannel
from engine.serving.cpu_affinity import pin_to_cpu
from engine.serving.log_replay import replay_file
from engine.serving.replay import main
from engine.serving.running_engine import build
from engine.serving.settings import EngineSettings, SettingsError
from tests.serving.server_process import REAL, ServerProcess, alive, eventually, run, running

TINY = ("--model", "cpu_tiny", "--kv-blocks", "64")
LONG = [3] * 6000


def start_long(server: ServerProcess) -> tuple[threading.Thread, list[tuple[int, object]]]:
    replies: list[tuple[int, object]] = []

    def ask() -> None:
        try:
            replies.append(server.complete(LONG, max_tokens=1))
        except OSError:
            replies.append((0, None))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    eventually(lambda: server.state()["executing"] == 1, "the long prefill executes")
    return thread, replies


def test_the_server_killed_in_a_prefill_leaves_no_engine(deep_flags: list[str]) -> None:
    with running(deep_flags, REAL) as server:
        child = server.child_pid()
        thread, _ = start_long(server)
        server.process.kill()
        thread.join()
        eventually(lambda: not alive(child), "the engine ends though it was executing")


def test_a_stop_in_a_prefill_is_quick_and_clean(deep_flags: list[str]) -> None:
    with running([*deep_flags, "--drain-s", "0"], REAL) as server:
        child = server.child_pid()
        thread, replies = start_long(server)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_exit() == 0
        thread.join()
        assert replies[0][0] == 500
        assert not alive(child)


def test_a_model_the_engine_does_not_know_is_one_sentence() -> None:
    status, output = run([*REAL, "--port", "0", "--model", "no_such_model"])
    assert status == 2
    assert output.startswith("server: model no_such_model is neither a folder nor one of cpu_demo, cpu_qwen2, ")
    assert output.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"profile": "nowhere.json"}, "--profile nowhere.json: cannot be read"),
        ({"decision_log": "nowhere/log.jsonl"}, "--decision-log nowhere/log.jsonl: cannot be written"),
        ({"kv_blocks": 2**39}, f"--kv-blocks: {2**39} KV blocks of 16 tokens need "),
        ({"kv_blocks": 2**40, "block_tokens": 2**20}, f"--kv-blocks: {2**40} KV blocks of {2**20} tokens need "),
        ({"kv_blocks": 1, "block_tokens": 2}, "--predictor polynomial cannot be fitted: "),
    ],
)
def test_settings_the_engine_cannot_take(settings: dict[str, object], words: str) -> None:
    ours, theirs = socket.socketpair()
    with (
        ours,
        pytest.raises(SettingsError) as caught,
        build(EngineSettings(model="cpu_tiny", **settings), BlockingChannel(theirs)),
    ):
        raise AssertionError("it was built")
    assert str(caught.value).startswith(words)


def test_an_engine_cpu_that_is_not_there() -> None:
    with pytest.raises(SettingsError, match="--engine-cpu: CPU 4000 is not available, only "):
        pin_to_cpu(4000, "--engine-cpu")


@pytest.mark.parametrize(
    "flags",
    [
        ["--policy", "s_edf", "--batching", "slo_aware"],
        ["--policy", "edf", "--batching", "chunked", "--chunk-tokens", "64", "--preempt", "restart"],
    ],
    ids=["s_edf", "chunked_restart"],
)
def test_the_decision_log_of_a_run_replays_exactly(
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "decisions.jsonl"
    with running([*TINY, *flags, "--decision-log", str(log)], REAL) as server:
        threads = [
            threading.Thread(
                target=server.complete,
                args=([3 + i] * (20 + 37 * i),),
                kwargs={"max_tokens": 1 + i, "ignore_eos": True, "ttft_slo_s": 5.0 / (1 + i)},
                daemon=True,
            )
            for i in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.report()["completed_requests"] == 12
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_exit() == 0
    calls, difference = replay_file(log)
    assert calls > 12
    assert difference is None
    assert main([str(log)]) == 0
    assert capsys.readouterr().out == f"{calls} calls replayed, all with the same commands\n"
    told = log.read_text().splitlines()
    other = json.loads(told[0])
    other["settings"]["settings"]["policy"] = "srpt"
    log.write_text("\n".join([json.dumps(other), *told[1:]]))
    calls, difference = replay_file(log)
    assert difference is not None
    assert difference.call == calls
    assert main([str(log)]) == 1


def test_a_prompt_whose_activations_never_fit_is_the_clients_mistake() -> None:
    with running([*TINY, "--activation-bytes", "200000"], REAL) as server:
        assert server.complete([3] * 8, max_tokens=1)[0] == 200
        status, body = server.complete([3] * 900, max_tokens=1)
        assert status == 400
        words = "the activations of its 900 tokens exceed the 200000 bytes there are"
        assert (body["error"]["message"], body["error"]["type"]) == (words, "invalid_request_error")
        assert server.complete([3] * 8, max_tokens=1)[0] == 200


def test_what_is_no_decision_log_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "x.jsonl"
    for content in (None, "", "{", '{"version": 0}', '{"version": 1, "settings": {}}'):
        if content is not None:
            log.write_text(content)
        assert main([str(log)]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"replay: {log}: ")
        assert told.count("\n") == 1

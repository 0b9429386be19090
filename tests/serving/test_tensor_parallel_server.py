"""A server whose engine is two real ranks: the same tokens over HTTP, and a rank that is killed."""

import os
import signal
import socket
import threading
from pathlib import Path

import pytest
import torch

from engine.core.batch import Sequence
from engine.core.events import Completion
from engine.serving.channel import BlockingChannel
from engine.serving.cpu_affinity import pin_engine
from engine.serving.running_engine import build
from engine.serving.settings import EngineSettings, SettingsError
from engine.torch_backend.models.catalogue import load_model
from tests.serving.server_process import REAL, ServerProcess, alive, eventually, running
from tests.torch_backend.executor_rig import Rig, decode, prefill

PROMPT = [(7 * i) % 500 + 2 for i in range(80)]
LONG = [3] * 6000


def tokens_of_one_rank(folder: Path, count: int) -> list[int]:
    torch.set_num_threads(1)
    rig = Rig(load_model(str(folder), dummy=True))
    rig.register("a", PROMPT, max_tokens=count, ignore_eos=True)
    tokens: list[int] = []
    for step in range(count):
        share = Sequence("a", 0, 80) if not step else Sequence("a", 79 + step, 1)
        rig.executor.submit([prefill(step, share) if not step else decode(step, share)])
        event = rig.event()
        assert isinstance(event, Completion)
        assert event.outputs[0].token_id is not None
        tokens.append(event.outputs[0].token_id)
    rig.executor.close()
    return tokens


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ask_long(server: ServerProcess) -> tuple[threading.Thread, list[tuple[int, object]]]:
    replies: list[tuple[int, object]] = []
    thread = threading.Thread(target=lambda: replies.append(server.complete(LONG, max_tokens=1)), daemon=True)
    thread.start()
    eventually(lambda: server.state()["executing"] == 1, "the long prefill executes")
    return thread, replies


def test_two_ranks_answer_as_one_does_and_a_killed_one_ends_the_server(deep_model: Path, deep_flags: list[str]) -> None:
    with running([*deep_flags, "--tensor-parallel", "2"], REAL) as server:
        body = server.complete(PROMPT, max_tokens=16, temperature=0, ignore_eos=True)[1]
        assert body["choices"][0]["token_ids"] == tokens_of_one_rank(deep_model, 16)
        engine = server.child_pid()
        (rank,) = children(engine)
        # A short prompt overtakes a long one, which stops on both ranks and goes on.
        thread, replies = ask_long(server)
        status, _ = server.complete(PROMPT, max_tokens=1, ttft_slo_s=1000)
        assert status == 200
        thread.join()
        assert replies[0][0] == 200
        assert server.report()["preemptions"] >= 1
        assert server.state()["kv_blocks_free"] == server.state()["kv_blocks_total"]

        thread, replies = ask_long(server)
        os.kill(rank, signal.SIGKILL)
        thread.join()
        status, reply = replies[0]
        assert status == 500
        assert "rank 1 of 2 was killed by SIGKILL" in str(reply)
        assert server.wait_exit() == 1
        assert not alive(engine)


def test_a_rank_s_cpu_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(SettingsError, match="--engine-cpu 99999, rank 1: CPU 100000 is not available"):
        pin_engine(99_999, 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tensor_parallel": 4}, "model cpu_tiny: kv_heads 2 cannot be split over 4 ranks"),
        ({"tensor_parallel": 2, "hand_over_folder": "kv"}, "--hand-over-folder conflicts with --tensor-parallel"),
    ],
)
def test_what_no_group_can_be_is_one_sentence(settings: dict[str, object], words: str) -> None:
    ours, theirs = socket.socketpair()
    with (
        ours,
        pytest.raises(SettingsError) as caught,
        build(EngineSettings(model="cpu_tiny", **settings), BlockingChannel(theirs)),  # type: ignore[arg-type]
    ):
        pass
    assert str(caught.value).startswith(words)

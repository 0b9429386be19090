"""Two real ranks over gloo: what they compute, two hundred preemptions, and a rank that fails alone or is killed."""

import os
import random
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.core.batch import Sequence, Task, TaskKind
from engine.core.commands import Discard, Pause, ReleaseKV, Resume
from engine.core.events import Completion, Event, Failed, KVReleased, Preempted
from engine.model.granularity import Granularity
from engine.model.segments import segments_of
from engine.model.shape import ModelLoadError
from engine.torch_backend import tensor_parallel
from engine.torch_backend.clock import MonotonicClock
from engine.torch_backend.event_queue import EventQueue
from engine.torch_backend.executor import TorchExecutor
from engine.torch_backend.gate import Gate
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.models.shard import Shard
from engine.torch_backend.other_rank import OtherRank
from engine.torch_backend.peers import PeersLostError
from engine.torch_backend.profiling import profile_of
from engine.torch_backend.program import plan_program
from engine.torch_backend.rank_link import all_reduce, new_words_file
from engine.torch_backend.rank_messages import Hello, Join, ModelChoice, Plan
from engine.torch_backend.settings import ExecutorSettings
from engine.torch_backend.task_state import build_state
from engine.torch_backend.tensor_parallel import RankGroup
from tests.torch_backend.engine_run import logits_of, new_cache, plan, prompt
from tests.torch_backend.executor_rig import Rig, decode, prefill

SETTINGS = ExecutorSettings(Granularity.OPERATOR, kv_blocks=64, block_tokens=8)
TINY = ModelChoice("cpu_tiny", "cpu", None, False, 0)


class Pair(Rig):
    """Rank 0 in this process, rank 1 in its own. lost: why the group broke."""

    def __init__(self) -> None:
        self.queue = EventQueue()
        self.waiting: list[Event] = []
        self.lost: list[str] = []
        self.group = RankGroup.launch(2, TINY, SETTINGS, self.lost.append)
        self.model = load_model("cpu_tiny", shard=Shard(0, 2), all_reduce=all_reduce)
        self.group.wait_ready()
        self.executor = TorchExecutor(self.model, SETTINGS, MonotonicClock(), self.queue.put, self.group)

    def close(self) -> None:
        self.executor.close()
        self.group.close()


@pytest.fixture(scope="module")
def pairs() -> Iterator[list[Pair]]:
    """The pair in use; processes are dear, so that only a broken one is replaced."""
    made: list[Pair] = []
    yield made
    for pair in made:
        pair.close()


@pytest.fixture
def pair(pairs: list[Pair]) -> Pair:
    if pairs and pairs[0].lost:
        pairs.pop().close()
    if not pairs:
        pairs.append(Pair())
    return pairs[0]


def free(pair: Pair, *names: str) -> None:
    for name in names:
        pair.executor.forget(name)
        pair.executor.submit([ReleaseKV(name)])
        assert isinstance(pair.event(), KVReleased)
    pair.executor.check()


def test_a_profile_has_times_of_all_ranks_together(pair: Pair) -> None:
    found = profile_of(pair.model, 48, rounds=1, asked=((16, 0), (8, 24)), peers=pair.group)
    assert (found["tensor_parallel"], found["model"]) == (2, "cpu_tiny")
    assert [(each["new_tokens"], each["context_tokens"]) for each in found["prefill"]] == [(16, 0), (8, 24)]
    assert {each["operator"] for each in found["operators"]} >= {"qkv_proj", "attention", "o_proj", "down_proj"}
    assert all(each["seconds"] > 0 for each in found["prefill"] + found["operators"])
    pair.group.free("profiled")


def test_logits_are_those_of_one_rank(pair: Pair, tiny: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, chunked, batched, then decoded: every head's logits."""
    seen: list[torch.Tensor] = []
    plain_head = Decoder.head

    def head(model: Decoder, state: object) -> None:
        plain_head(model, state)  # type: ignore[arg-type]
        seen.append(state.logits.clone())  # type: ignore[attr-defined]

    monkeypatch.setattr(Decoder, "head", head)
    assert (pair.model.shape.heads, pair.model.shape.kv_heads) == (2, 1)
    tokens = {"a": prompt(30), "b": prompt(17, seed=2)}
    steps = [
        prefill(1, Sequence("a", 0, 30)),
        prefill(2, Sequence("b", 0, 5, last=False)),
        prefill(3, Sequence("b", 5, 12)),
        *(decode(4 + i, Sequence("a", 30 + i, 1), Sequence("b", 17 + i, 1)) for i in range(6)),
    ]
    kept: list[list[torch.Tensor]] = []
    outputs: list[list[object]] = []
    for rig in (pair, Rig(tiny)):
        seen.clear()
        for name, ids in tokens.items():
            rig.register(name, ids, max_tokens=8, ignore_eos=True)
        outputs.append([])
        for step in steps:
            rig.executor.submit([step])
            event = rig.event()
            assert isinstance(event, Completion), event
            outputs[-1].append(event.outputs)
        kept.append(list(seen))
    rig.executor.close()
    free(pair, "a", "b")
    assert outputs[0] == outputs[1]
    assert len(kept[0]) == len(kept[1]) == 8
    for ours, alone in zip(*kept, strict=True):
        torch.testing.assert_close(ours, alone, rtol=1e-4, atol=1e-5)


def test_two_hundred_random_preemptions(pair: Pair, tiny: Decoder) -> None:
    """Paused, resumed, overtaken or dropped at random; what completes has the token of a run that nobody pauses."""
    chance = random.Random(5)
    prompts = {f"p{seed}": prompt(chance.randint(3, 60), seed=seed) for seed in range(6)}
    alone = {}
    for name, ids in prompts.items():
        cache = new_cache(tiny)
        cache.allocate(name, len(ids))
        logits = logits_of(plan(tiny, cache, [Sequence(name, 0, len(ids))], {name: ids}))
        alone[name] = int(logits.argmax())
    held: list[tuple[int, str]] = []
    preempted, task_id, places = 0, 100, set()
    deadline_s = time.monotonic() + 500
    while preempted < 200:
        assert time.monotonic() < deadline_s
        names = [name for name in prompts if name not in {held_name for _, held_name in held}]
        if held and (len(held) == 4 or chance.random() < 0.6):
            current, name = held.pop(chance.randrange(len(held)))
            pair.executor.submit([Resume(current)])
        else:
            name = chance.choice(names)
            task_id += 1
            current = task_id
            pair.register(name, prompts[name])
            pair.executor.submit([prefill(current, Sequence(name, 0, len(prompts[name])))])
        time.sleep(chance.random() * chance.choice([0, 1e-4, 3e-3]))
        pair.executor.submit([Pause(current)])
        event = pair.event()
        if isinstance(event, Preempted):
            preempted += 1
            places.add(event.operator_index)
            if chance.random() < 0.1:
                pair.executor.submit([Discard(current)])
                free(pair, name)
            else:
                held.append((current, name))
            continue
        assert isinstance(event, Completion), event
        assert event.outputs[0].token_id == alone[name]
        free(pair, name)
    for current, name in held:
        pair.executor.submit([Resume(current)])
        event = pair.event()
        assert isinstance(event, Completion)
        assert event.outputs[0].token_id == alone[name]
        free(pair, name)
    assert len(places) >= 3


def test_what_breaks_on_all_ranks_alike_fails_one_task(pair: Pair) -> None:
    pair.register("wrong", [4, 100_000, 5])
    pair.executor.submit([prefill(900, Sequence("wrong", 0, 3))])
    event = pair.event()
    assert isinstance(event, Failed)
    assert "IndexError" in event.reason or "index" in event.reason
    free(pair, "wrong")
    pair.register("right", prompt(9))
    pair.executor.submit([prefill(901, Sequence("right", 0, 9))])
    assert isinstance(pair.event(), Completion)
    free(pair, "right")


def test_a_rank_that_breaks_alone_breaks_the_group(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 is given a token that does not exist; rank 0 sits in a sum that rank 1 never joins."""
    monkeypatch.setattr(tensor_parallel, "ALONE_S", 1.0)
    group, model, ids = pair.group, pair.model, prompt(9)
    task = Task(1, TaskKind.PREFILL, (Sequence("a", 0, 9),))
    cache = new_cache(model)
    cache.allocate("a", 16)
    group.allocate("a", 16)
    group._send(Plan(task, array("i", [*ids[:8], 100_000])))
    state = build_state(model.shape, cache, model.rope, segments_of(task), ids)
    program = plan_program(model, state, [], Granularity.OPERATOR)
    with torch.inference_mode(), pytest.raises(PeersLostError, match="rank 1 of 2 failed there"):
        group.run(1, program, Gate(), None, lambda _: 1)
    assert len(pair.lost) == 1


def test_a_model_that_does_not_divide_is_one_sentence() -> None:
    with pytest.raises(ModelLoadError, match="cpu_tiny: kv_heads 2 cannot be split over 4 ranks"):
        load_model("cpu_tiny", shard=Shard(0, 4))


def test_a_rank_whose_rank_0_is_gone_ends_whatever_it_does(tmp_path: Path) -> None:
    """Here it waits for the group to come together, deep inside torch. Of files it takes its own alone."""
    (tmp_path / "store").mkdir()
    (tmp_path / "other").touch()
    words = new_words_file()
    rank = OtherRank.start(1, words, None)
    os.close(words)
    rank.connection.send(Join(1, 2, str(tmp_path / "store" / "file"), TINY, SETTINGS))
    assert isinstance(rank.connection.recv(), Hello)
    rank.connection.close()
    assert rank.process.wait(120) == 1
    deadline_s = time.monotonic() + 120
    while (left := [path.name for path in tmp_path.iterdir()]) != ["other"] and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert left == ["other"]

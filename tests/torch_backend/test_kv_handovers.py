"""A request prefilled by one executor goes on in another, token for token as if it had stayed."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch

from engine.core.batch import Sequence, Task, TaskKind
from engine.core.commands import ReleaseKV, Start
from engine.core.events import Completion, Failed, KVReleased
from engine.core.request import HandOver
from engine.torch_backend import kv_handovers
from engine.torch_backend.executor import TorchExecutor
from engine.torch_backend.kv_transport import KVHandOverError, KVLayout, LayerKV, ReceivedKV
from engine.torch_backend.models.llama import Llama
from engine.torch_backend.payload import Payload
from engine.torch_backend.sampling import SamplingSettings
from tests.torch_backend.engine_run import prompt
from tests.torch_backend.executor_rig import Rig, decode, prefill

PROMPT_TOKENS = 21


class Wire:
    """A transport between two executors of one process, which breaks when it is told to."""

    def __init__(self) -> None:
        self.sent: dict[str, tuple[KVLayout, list[LayerKV], bytes, str]] = {}
        self.broken = ""

    def send(self, layout: KVLayout, layers: Iterable[LayerKV], sampler: bytes, to: str) -> str:
        if self.broken:
            raise KVHandOverError(self.broken)
        ticket = f"ticket {len(self.sent)}"
        self.sent[ticket] = (layout, [(keys.clone(), values.clone()) for keys, values in layers], sampler, to)
        return ticket

    @contextmanager
    def receive(self, ticket: str, layout: KVLayout) -> Iterator[ReceivedKV]:
        if self.broken:
            raise KVHandOverError(self.broken)
        sent, layers, sampler, _ = self.sent[ticket]
        assert sent == layout
        yield ReceivedKV(iter(layers), sampler)

    def free(self, ticket: str) -> None:
        self.sent.pop(ticket, None)

    def close(self) -> None:
        pass


class Pair:
    """A prefill and a decode executor, and the tickets the first one gave."""

    def __init__(self, model: Llama) -> None:
        self.wire, self.tickets = Wire(), dict[str, str]()
        self.prefill, self.decode = Rig(model), Rig(model)
        for rig in (self.prefill, self.decode):
            rig.executor.hand_over_by(self.wire, self.tickets.__setitem__)

    def close(self) -> None:
        self.prefill.executor.close()
        self.decode.executor.close()

    def first_token(self, sampling: SamplingSettings) -> int:
        payload = Payload(tuple(prompt(PROMPT_TOKENS)), sampling, HandOver.SENDS)
        self.prefill.executor.register("a", payload)
        self.prefill.executor.submit([prefill(0, Sequence("a", 0, PROMPT_TOKENS))])
        event = self.prefill.event()
        assert isinstance(event, Completion)
        token = event.outputs[0].token_id
        assert token is not None
        assert event.outputs[0].finish_reason is None
        return token

    def send(self) -> Completion | Failed:
        self.prefill.executor.send_to("a", "decode-3")
        self.prefill.executor.submit([hand_over(1, TaskKind.KV_SEND)])
        event = self.prefill.event()
        assert isinstance(event, Completion | Failed)
        return event

    def receive(self, first_token: int, sampling: SamplingSettings, ticket: str) -> Completion | Failed:
        payload = Payload(tuple(prompt(PROMPT_TOKENS)), sampling, HandOver.RECEIVES, first_token, ticket)
        self.decode.executor.register("a", payload)
        self.decode.executor.submit([hand_over(0, TaskKind.KV_RECEIVE)])
        event = self.decode.event()
        assert isinstance(event, Completion | Failed)
        return event


def hand_over(task_id: int, kind: TaskKind) -> Start:
    return Start(Task(task_id, kind, (Sequence("a", PROMPT_TOKENS, 0, last=False),)))


@pytest.fixture
def pair(tiny: Llama) -> Iterator[Pair]:
    made = Pair(tiny)
    yield made
    made.close()


def decoded(rig: Rig, first: int, steps: int) -> list[int]:
    tokens = [first]
    for step in range(steps):
        rig.executor.submit([decode(10 + step, Sequence("a", PROMPT_TOKENS + step, 1))])
        event = rig.event()
        assert isinstance(event, Completion)
        tokens.append(event.outputs[0].token_id or 0)
    return tokens


@pytest.mark.parametrize(
    "sampling",
    [SamplingSettings(6, ignore_eos=True), SamplingSettings(6, temperature=1.5, seed=11, ignore_eos=True)],
    ids=["greedy", "seeded"],
)
def test_the_tokens_are_those_of_one_executor(tiny: Llama, pair: Pair, sampling: SamplingSettings) -> None:
    alone = Rig(tiny)
    alone.executor.register("a", Payload(tuple(prompt(PROMPT_TOKENS)), sampling))
    alone.executor.submit([prefill(0, Sequence("a", 0, PROMPT_TOKENS))])
    event = alone.event()
    assert isinstance(event, Completion)
    expected = decoded(alone, event.outputs[0].token_id or 0, 5)
    alone.executor.close()

    first = pair.first_token(sampling)
    assert isinstance(pair.send(), Completion)
    ticket = pair.tickets["a"]
    assert pair.wire.sent[ticket][3] == "decode-3"
    assert isinstance(pair.receive(first, sampling, ticket), Completion)
    assert decoded(pair.decode, first, 5) == expected


def test_blocks_are_free_behind_the_send(pair: Pair) -> None:
    pair.first_token(SamplingSettings(6))
    cache = pair.prefill.executor.cache
    assert cache.free_blocks == 64 - 3  # 21 tokens in blocks of 8, whatever is to be generated elsewhere
    pair.send()
    pair.prefill.executor.submit([ReleaseKV("a")])
    assert isinstance(pair.prefill.event(), KVReleased)
    assert cache.free_blocks == 64
    assert pair.prefill.executor._requests == {}


def test_on_a_device_a_hand_over_is_over_when_its_stream_is(monkeypatch: pytest.MonkeyPatch, tiny: Llama) -> None:
    done: list[str] = []
    tell = TorchExecutor._handed_over

    class Stream:
        def synchronize(self) -> None:
            done.append("waited")

    def told(executor: TorchExecutor, task: Task, failure: str | None) -> None:
        done.append(task.kind)
        tell(executor, task, failure)

    monkeypatch.setattr(kv_handovers, "_stream", lambda _: Stream())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(TorchExecutor, "_handed_over", told)
    pair = Pair(tiny)
    first = pair.first_token(SamplingSettings(3))
    assert isinstance(pair.send(), Completion)
    assert isinstance(pair.receive(first, SamplingSettings(3), pair.tickets["a"]), Completion)
    assert done == ["waited", TaskKind.KV_SEND, "waited", TaskKind.KV_RECEIVE]
    pair.close()


def test_scattered_blocks_are_filled_as_well(pair: Pair) -> None:
    cache = pair.decode.executor.cache
    for name in "uvwxyz":
        cache.allocate(name, 80)  # of 64 blocks, 4 stay free at the end
    for name in "vx":
        cache.free(name)
    cache.allocate("v", 90)
    cache.allocate("x", 50)
    first = pair.first_token(SamplingSettings(6))
    pair.send()
    cache.free("w")
    assert isinstance(pair.receive(first, SamplingSettings(6), pair.tickets["a"]), Completion)
    sent = pair.wire.sent[pair.tickets["a"]][1]
    for layer, (keys, values) in enumerate(sent):
        got_keys, got_values = cache.read(layer, "a", PROMPT_TOKENS)
        assert torch.equal(got_keys, keys)
        assert torch.equal(got_values, values)


def test_a_broken_send_fails_its_task_and_keeps_the_thread(pair: Pair) -> None:
    pair.first_token(SamplingSettings(6))
    pair.wire.broken = "the wire is cut"
    event = pair.send()
    assert isinstance(event, Failed)
    assert event.reason == "the wire is cut"
    pair.wire.broken = ""
    pair.prefill.executor.submit([hand_over(2, TaskKind.KV_SEND)])
    assert isinstance(pair.prefill.event(), Completion)


def test_a_broken_receive_fails_its_task(pair: Pair) -> None:
    first = pair.first_token(SamplingSettings(6))
    pair.send()
    pair.wire.broken = "the wire is cut"
    assert isinstance(pair.receive(first, SamplingSettings(6), pair.tickets["a"]), Failed)
    pair.decode.executor.submit([ReleaseKV("a")])
    assert isinstance(pair.decode.event(), KVReleased)
    assert pair.decode.executor.cache.free_blocks == 64


def test_an_executor_without_a_transport_refuses() -> None:
    with pytest.raises(ValueError, match="first token"):
        Payload((1,), hand_over=HandOver.RECEIVES)

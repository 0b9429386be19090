"""Decoding through the executor: against transformers' generate, sampling, and when a request ends."""

from typing import Any

import pytest
import torch

from engine.core.batch import Sequence
from engine.core.commands import Start
from engine.core.events import Completion
from engine.torch_backend.models.llama import Llama
from engine.torch_backend.payload import LiveRequest, Payload
from engine.torch_backend.sampling import SamplingSettings, make_generator, sample
from tests.torch_backend.engine_run import prompt
from tests.torch_backend.executor_rig import Rig, decode, prefill
from tests.torch_backend.families import Family


def generate(rig: Rig, prompts: dict[str, list[int]]) -> dict[str, list[tuple[int, str | None]]]:
    """Prefill all in one batch, then decode steps over those that go on."""
    got: dict[str, list[tuple[int, str | None]]] = {name: [] for name in prompts}
    command: Start = prefill(0, *(Sequence(name, 0, len(ids)) for name, ids in prompts.items()))
    for step in range(1, 50):
        rig.executor.submit([command])
        event = rig.event()
        assert isinstance(event, Completion)
        for output in event.outputs:
            assert output.token_id is not None
            got[output.request_id].append((output.token_id, output.finish_reason))
        alive = [name for name, tokens in got.items() if tokens[-1][1] is None]
        if not alive:
            return got
        shares = [Sequence(name, len(prompts[name]) + len(got[name]) - 1, 1) for name in alive]
        command = decode(step, *shares)
    raise AssertionError("the requests never end")


def test_greedy_decoding_equals_transformers_generate(family: Family) -> None:
    prompts = {"a": prompt(20), "b": prompt(9, seed=2), "c": prompt(1, seed=3)}
    wanted = {"a": 32, "b": 5, "c": 32}
    rig = Rig(family.model)
    for name, ids in prompts.items():
        rig.register(name, ids, max_tokens=wanted[name], ignore_eos=True)
    got = generate(rig, prompts)
    rig.executor.close()
    for name, ids in prompts.items():
        with torch.no_grad():
            whole = family.reference.generate(
                torch.tensor([ids]), max_new_tokens=wanted[name], do_sample=False, eos_token_id=None, pad_token_id=0
            )
        assert [token for token, _ in got[name]] == whole[0, len(ids) :].tolist()
        assert [reason for _, reason in got[name]] == [None] * (wanted[name] - 1) + ["length"]


def test_the_same_seed_gives_the_same_tokens_alone_and_in_a_batch(tiny: Llama) -> None:
    prompts = {"a": prompt(20), "b": prompt(9, seed=2), "c": prompt(20)}
    seeds = {"a": 5, "b": 5, "c": 6}

    def run(names: str) -> dict[str, list[tuple[int, str | None]]]:
        rig = Rig(tiny)
        for name in names:
            rig.register(name, prompts[name], max_tokens=12, ignore_eos=True, temperature=0.8, seed=seeds[name])
        got = generate(rig, {name: prompts[name] for name in names})
        rig.executor.close()
        return got

    together = run("abc")
    assert run("a")["a"] == together["a"]
    assert run("b")["b"] == together["b"]
    assert together["a"] != together["c"]


def test_sampling_follows_the_probabilities() -> None:
    settings = SamplingSettings(temperature=2.0, seed=1)
    generator = make_generator(settings, torch.device("cpu"))
    logits = torch.tensor([[2 * 0.0, 2 * 1.0986123, -torch.inf]])  # at temperature 2: 1/4, 3/4, 0
    drawn = [sample(logits, [(settings, generator)]).item() for _ in range(2000)]
    assert abs(drawn.count(1) / 2000 - 0.75) < 0.04
    assert drawn.count(2) == 0


def test_greedy_and_sampled_rows_mix() -> None:
    warm = SamplingSettings(temperature=1e-3, seed=1)
    logits = torch.tensor([[0.0, 5.0], [7.0, 0.0]])
    assert sample(logits, [(SamplingSettings(), None), (warm, make_generator(warm, torch.device("cpu")))]).tolist() == [
        1,
        0,
    ]


def test_end_of_text_ends_a_request_unless_it_is_ignored() -> None:
    stopping = LiveRequest.of(Payload((5,), SamplingSettings(max_tokens=3)), torch.device("cpu"))
    assert [stopping.take(token, (1, 9)) for token in (7, 9)] == [None, "stop"]
    going_on = LiveRequest.of(Payload((5,), SamplingSettings(max_tokens=3, ignore_eos=True)), torch.device("cpu"))
    assert [going_on.take(token, (1, 9)) for token in (7, 9, 1)] == [None, None, "length"]
    both = LiveRequest.of(Payload((5,), SamplingSettings(max_tokens=1)), torch.device("cpu"))
    assert both.take(1, (1,)) == "stop"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"temperature": -0.1}, "temperature must be 0 or above, got -0.1"),
        ({"temperature": float("nan")}, "temperature must be 0 or above, got nan"),
    ],
)
def test_impossible_sampling_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingSettings(**wrong)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        Payload(())

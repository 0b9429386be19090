"""Logits of every architecture against transformers with the same weights."""

from typing import Any

import pytest
import torch

from engine.core.batch import Sequence
from engine.model.granularity import Granularity
from engine.torch_backend.attention_kernels import Sdpa
from engine.torch_backend.gate import Gate
from engine.torch_backend.models.catalogue import load_model
from tests.torch_backend.engine_run import hf_model, logits_of, new_cache, plan, prompt
from tests.torch_backend.families import Family

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
KERNELS = ("chosen here", "sdpa")


def use_kernel(family: Family, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what computes attention where the machine has no faster kernel."""
    if kernel == "sdpa":
        monkeypatch.setattr(family.model, "attention_kernel", Sdpa())


def expected_logits(reference: Any, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return reference(torch.tensor([tokens])).logits[:, -1]


@pytest.mark.parametrize("length", [1, 2, 9, 64, 333])
@pytest.mark.parametrize("granularity", list(Granularity))
def test_whole_prompt(family: Family, length: int, granularity: Granularity) -> None:
    cache = new_cache(family.model)
    cache.allocate("a", length)
    tokens = prompt(length)
    got = logits_of(plan(family.model, cache, [Sequence("a", 0, length)], {"a": tokens}, granularity))
    torch.testing.assert_close(got, expected_logits(family.reference, tokens), **CLOSE)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("chunk", [1, 37, 128, 300])
def test_chunks_one_after_the_other(family: Family, chunk: int, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sdpa chunks of 128 and more take the path that merges two parts, shorter ones the masked path."""
    use_kernel(family, kernel, monkeypatch)
    length = 2 * chunk + 5
    tokens = prompt(length, seed=chunk)
    cache = new_cache(family.model, blocks=80)
    cache.allocate("a", length)
    for start in range(0, length, chunk):
        rows = min(chunk, length - start)
        share = Sequence("a", start, rows, last=start + rows == length)
        program = plan(family.model, cache, [share], {"a": tokens})
        if share.last:
            got = logits_of(program)
        else:
            with torch.inference_mode():
                for operator in program.operators:
                    operator.run()
            assert program.operators[-1].name in ("L1.down_proj", "L1.experts")
    torch.testing.assert_close(got, expected_logits(family.reference, tokens), **CLOSE)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("granularity", [Granularity.OPERATOR, Granularity.TILE])
def test_batch_of_different_lengths_and_contexts(
    family: Family, granularity: Granularity, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(family, kernel, monkeypatch)
    tokens = {
        name: prompt(length, seed=i) for i, (name, length) in enumerate({"a": 5, "b": 41, "c": 30, "d": 1}.items())
    }
    cache = new_cache(family.model)
    for name, ids in tokens.items():
        cache.allocate(name, len(ids))
    before = plan(
        family.model, cache, [Sequence("c", 0, 11, last=False), Sequence("b", 0, 40, last=False)], tokens, granularity
    )
    with torch.inference_mode():
        for operator in before.operators:
            operator.run()
    shares = [Sequence("a", 0, 5), Sequence("b", 40, 1), Sequence("c", 11, 19), Sequence("d", 0, 1)]
    got = logits_of(plan(family.model, cache, shares, tokens, granularity))
    want = torch.cat([expected_logits(family.reference, tokens[name]) for name in "abcd"])
    torch.testing.assert_close(got, want, **CLOSE)


def test_only_sequences_that_end_their_prompt_give_logits(family: Family) -> None:
    tokens = {"a": prompt(12, seed=1), "b": prompt(20, seed=2)}
    cache = new_cache(family.model)
    for name in tokens:
        cache.allocate(name, 20)
    got = logits_of(plan(family.model, cache, [Sequence("a", 0, 6, last=False), Sequence("b", 0, 20)], tokens))
    torch.testing.assert_close(got, expected_logits(family.reference, tokens["b"]), **CLOSE)


def test_scattered_blocks_give_the_same_bits_as_a_contiguous_run(family: Family) -> None:
    tokens = {"a": prompt(50)}
    shares = [Sequence("a", 0, 50)]
    whole, scattered = new_cache(family.model), new_cache(family.model, blocks=13)
    whole.allocate("a", 50)
    for name in ("x", "y", "z", "w", "v"):
        scattered.allocate(name, 16)
    for name in ("x", "z", "v"):
        scattered.free(name)
    scattered.allocate("a", 50)
    assert isinstance(whole.slots("a", 0, 50), slice)
    assert isinstance(scattered.slots("a", 0, 50), torch.Tensor)
    assert torch.equal(
        logits_of(plan(family.model, whole, shares, tokens)), logits_of(plan(family.model, scattered, shares, tokens))
    )


@pytest.mark.parametrize("granularity", [Granularity.OPERATOR, Granularity.TILE])
def test_stopping_before_every_operator_changes_no_bit(family: Family, granularity: Granularity) -> None:
    """A batch with a context, stopped everywhere; another request's prefill runs in every pause."""
    tokens = {"a": prompt(30), "b": prompt(17, seed=2), "other": prompt(25, seed=3)}

    def run(stops: bool) -> torch.Tensor:
        cache = new_cache(family.model)
        for name, ids in tokens.items():
            cache.allocate(name, len(ids))
        first = plan(family.model, cache, [Sequence("a", 0, 11, last=False)], tokens)
        program = plan(family.model, cache, [Sequence("a", 11, 19), Sequence("b", 0, 17)], tokens, granularity)
        with torch.inference_mode():
            assert first.run(Gate())
            for index in range(len(program.operators) if stops else 0):
                gate = Gate()
                gate.stop_at(index, 0)
                assert not program.run(gate)
                assert program.cursor == index
                assert plan(family.model, cache, [Sequence("other", 0, 25)], tokens).run(Gate())
        return logits_of(program)

    assert torch.equal(run(stops=True), run(stops=False))


def test_cpu_demo_prompt() -> None:
    model = load_model("cpu_demo")
    reference = hf_model("cpu_demo", model)
    cache = new_cache(model, blocks=100)
    cache.allocate("a", 700)
    tokens = prompt(700, vocabulary=4096)
    got = logits_of(plan(model, cache, [Sequence("a", 0, 700)], {"a": tokens}))
    torch.testing.assert_close(got, expected_logits(reference, tokens), **CLOSE)

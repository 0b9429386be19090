"""Logits against transformers' LlamaForCausalLM with the same weights."""

from typing import Any

import pytest
import torch

from engine.core.batch import Sequence
from engine.model.granularity import Granularity
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.llama import Llama
from tests.torch_backend.engine_run import hf_model, logits_of, new_cache, plan, prompt

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def expected_logits(reference: Any, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return reference(torch.tensor([tokens])).logits[:, -1]


@pytest.mark.parametrize("length", [1, 2, 9, 64, 333])
@pytest.mark.parametrize("granularity", list(Granularity))
def test_whole_prompt(tiny: Llama, tiny_reference: Any, length: int, granularity: Granularity) -> None:
    cache = new_cache(tiny)
    cache.allocate("a", length)
    tokens = prompt(length)
    got = logits_of(plan(tiny, cache, [Sequence("a", 0, length)], {"a": tokens}, granularity))
    torch.testing.assert_close(got, expected_logits(tiny_reference, tokens), **CLOSE)


@pytest.mark.parametrize("chunk", [1, 37, 128, 300])
def test_chunks_one_after_the_other(tiny: Llama, tiny_reference: Any, chunk: int) -> None:
    """Chunks of 128 and more take the path that merges two parts, shorter ones the masked path."""
    length = 2 * chunk + 5
    tokens = prompt(length, seed=chunk)
    cache = new_cache(tiny, blocks=80)
    cache.allocate("a", length)
    for start in range(0, length, chunk):
        rows = min(chunk, length - start)
        share = Sequence("a", start, rows, last=start + rows == length)
        program = plan(tiny, cache, [share], {"a": tokens})
        if share.last:
            got = logits_of(program)
        else:
            with torch.inference_mode():
                for operator in program.operators:
                    operator.run()
            assert program.operators[-1].name == "L1.down_proj"
    torch.testing.assert_close(got, expected_logits(tiny_reference, tokens), **CLOSE)


@pytest.mark.parametrize("granularity", [Granularity.OPERATOR, Granularity.TILE])
def test_batch_of_different_lengths_and_contexts(tiny: Llama, tiny_reference: Any, granularity: Granularity) -> None:
    tokens = {
        name: prompt(length, seed=i) for i, (name, length) in enumerate({"a": 5, "b": 41, "c": 30, "d": 1}.items())
    }
    cache = new_cache(tiny)
    for name, ids in tokens.items():
        cache.allocate(name, len(ids))
    before = plan(
        tiny, cache, [Sequence("c", 0, 11, last=False), Sequence("b", 0, 40, last=False)], tokens, granularity
    )
    with torch.inference_mode():
        for operator in before.operators:
            operator.run()
    shares = [Sequence("a", 0, 5), Sequence("b", 40, 1), Sequence("c", 11, 19), Sequence("d", 0, 1)]
    got = logits_of(plan(tiny, cache, shares, tokens, granularity))
    want = torch.cat([expected_logits(tiny_reference, tokens[name]) for name in "abcd"])
    torch.testing.assert_close(got, want, **CLOSE)


def test_only_sequences_that_end_their_prompt_give_logits(tiny: Llama, tiny_reference: Any) -> None:
    tokens = {"a": prompt(12, seed=1), "b": prompt(20, seed=2)}
    cache = new_cache(tiny)
    for name in tokens:
        cache.allocate(name, 20)
    got = logits_of(plan(tiny, cache, [Sequence("a", 0, 6, last=False), Sequence("b", 0, 20)], tokens))
    torch.testing.assert_close(got, expected_logits(tiny_reference, tokens["b"]), **CLOSE)


def test_scattered_blocks_give_the_same_bits_as_a_contiguous_run(tiny: Llama) -> None:
    tokens = {"a": prompt(50)}
    shares = [Sequence("a", 0, 50)]
    whole, scattered = new_cache(tiny), new_cache(tiny, blocks=13)
    whole.allocate("a", 50)
    for name in ("x", "y", "z", "w", "v"):
        scattered.allocate(name, 16)
    for name in ("x", "z", "v"):
        scattered.free(name)
    scattered.allocate("a", 50)
    assert isinstance(whole.slots("a", 0, 50), slice)
    assert isinstance(scattered.slots("a", 0, 50), torch.Tensor)
    assert torch.equal(logits_of(plan(tiny, whole, shares, tokens)), logits_of(plan(tiny, scattered, shares, tokens)))


def test_llama3_rope_scaling_and_a_bigger_group_of_heads() -> None:
    from dataclasses import replace

    from transformers import LlamaConfig, LlamaForCausalLM

    from engine.model.shape import RopeScaling
    from engine.torch_backend.models.weight_sources import RandomWeights
    from engine.torch_backend.models.weights import fill
    from tests.torch_backend.engine_run import hf_state

    shape = replace(load_model("cpu_tiny").shape, kv_heads=1, tied_embeddings=False, head_dim=32)
    shape = replace(shape, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 64))
    model = Llama(shape, fill(shape, RandomWeights(0, torch.device("cpu"), torch.float32)))
    config = LlamaConfig(
        vocab_size=512, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, head_dim=32, rms_norm_eps=1e-5, max_position_embeddings=1024, tie_word_embeddings=False,
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
    )  # fmt: skip
    reference = LlamaForCausalLM(config).eval()
    reference.load_state_dict(hf_state(model))
    cache = new_cache(model)
    cache.allocate("a", 200)
    tokens = prompt(200)
    got = logits_of(plan(model, cache, [Sequence("a", 0, 200)], {"a": tokens}))
    torch.testing.assert_close(got, expected_logits(reference, tokens), **CLOSE)


def test_cpu_demo_prompt() -> None:
    model = load_model("cpu_demo")
    reference = hf_model("cpu_demo", model)
    cache = new_cache(model, blocks=100)
    cache.allocate("a", 700)
    tokens = prompt(700, vocabulary=4096)
    got = logits_of(plan(model, cache, [Sequence("a", 0, 700)], {"a": tokens}))
    torch.testing.assert_close(got, expected_logits(reference, tokens), **CLOSE)

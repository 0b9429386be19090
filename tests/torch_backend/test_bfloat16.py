"""bfloat16 against float32: no further from it than transformers' own bfloat16 is."""

import torch

from engine.core.batch import Sequence
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.decoder import Decoder
from tests.torch_backend.engine_run import logits_of, new_cache, plan, prompt
from tests.torch_backend.families import Family

PROMPTS = {f"p{number}": prompt(5 + 3 * number, seed=number) for number in range(24)}


def our_logits(model: Decoder) -> torch.Tensor:
    cache = new_cache(model, blocks=160)
    for name, ids in PROMPTS.items():
        cache.allocate(name, len(ids))
    shares = [Sequence(name, 0, len(ids)) for name, ids in PROMPTS.items()]
    return logits_of(plan(model, cache, shares, PROMPTS))


def median_error(logits: torch.Tensor, exact: torch.Tensor) -> float:
    """Over prompts: in a mixture of experts, rounding sends a row to another expert where two are as likely."""
    return float(((logits - exact).norm(dim=1) / exact.norm(dim=1)).median())


def test_logits_and_their_largest_agree_with_float32(family: Family) -> None:
    from transformers import AutoModelForCausalLM

    exact = our_logits(family.model)
    ours = our_logits(load_model(str(family.folder), dtype="bfloat16"))
    reference = AutoModelForCausalLM.from_pretrained(family.folder, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        theirs = torch.cat([reference(torch.tensor([ids])).logits[:, -1].float() for ids in PROMPTS.values()])
    assert median_error(ours, exact) < 1.1 * median_error(theirs, exact)
    assert (ours.argmax(dim=1) == exact.argmax(dim=1)).float().mean() >= 0.9

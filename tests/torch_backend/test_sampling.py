"""Tokens from logits: what one request asks for never costs the other members of its step."""

import pytest
import torch

from engine.torch_backend.sampling import GREEDY_BELOW, SamplingSettings, make_generator, sample

LOGITS = torch.tensor([[0.0, 3.0, 1.0], [2.0, -1.0, 0.0]])
CPU = torch.device("cpu")


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-320, 1e-38, 1e-10, GREEDY_BELOW])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_a_vanishing_temperature_is_the_likeliest_token_and_harms_no_neighbour(
    temperature: float, scale: float
) -> None:
    cold = SamplingSettings(temperature=temperature, seed=1)
    warm = SamplingSettings(temperature=0.0)
    choices = [(cold, make_generator(cold, CPU)), (warm, make_generator(warm, CPU))]
    assert sample(LOGITS * scale, choices).tolist() == [1, 0]


def test_a_temperature_draws_and_a_seed_repeats_the_draws() -> None:
    warm = SamplingSettings(temperature=1.0, seed=7)
    drawn = []
    for _ in range(2):
        generator = make_generator(warm, CPU)
        drawn.append([int(sample(LOGITS[:1], [(warm, generator)])[0]) for _ in range(200)])
    assert drawn[0] == drawn[1]
    # softmax(0, 3, 1) = 0.042, 0.844, 0.114: 200 draws have each, the likeliest in most.
    assert set(drawn[0]) == {0, 1, 2}
    assert 150 < drawn[0].count(1) < 190

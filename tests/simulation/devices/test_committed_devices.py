"""The numbers of conf/device and conf/model against what is published."""

from itertools import pairwise

import numpy as np
import pytest
from omegaconf import OmegaConf

from engine.core.batch import Sequence, Task, TaskKind
from engine.model.catalogue import load_shape
from engine.model.granularity import Granularity
from engine.simulation.devices.roofline import RooflineDevice
from engine.simulation.kv_pool import kv_pool_tokens, rank_weights
from engine.simulation.timed_program import TimedProgram
from tests.simulation.devices.rig import ROOT, SHAPE, accelerator, committed, task, total_s

PUBLISHED_TTFT_S = {16: 0.024, 128: 0.024, 546: 0.055, 1132: 0.082, 2315: 0.166, 4174: 0.292, 16746: 1.75}
"""Unloaded prefills of Llama-3.1-8B on one A800 (lower envelope of the released log; <= 128 tokens take 24 ms)."""
ROOFLINES = ("a800_release", "a800_clean", "h100", "h200")
MODELS = {"llama3_8b": 1, "qwen2_5_14b": 2, "llama3_70b": 4, "qwen3_30b_a3b": 2}
"""The paper's models and the ranks they run on here."""


def device(name: str, model: str = "llama3_8b", granularity: Granularity = Granularity.OPERATOR) -> RooflineDevice:
    synced = name == "a800_release"
    return RooflineDevice(load_shape(model), committed(name), MODELS[model], granularity, half_layer_sync=synced)


@pytest.mark.parametrize("tokens", PUBLISHED_TTFT_S)
def test_a800_release_meets_the_published_points(tokens: int) -> None:
    assert total_s(device("a800_release"), task((tokens, 0))) == pytest.approx(PUBLISHED_TTFT_S[tokens], rel=0.1)


def test_a800_clean_is_the_release_without_its_wait() -> None:
    release, clean = committed("a800_release"), committed("a800_clean")
    assert clean.half_layer_sync_s == 0 < release.half_layer_sync_s
    for tokens in PUBLISHED_TTFT_S:
        waits = 2 * 32 * release.half_layer_sync_s
        spared = total_s(device("a800_release"), task((tokens, 0))) - total_s(device("a800_clean"), task((tokens, 0)))
        assert spared == pytest.approx(waits)
    # A rival on a800_release is not charged the wait.
    rival = RooflineDevice(load_shape("llama3_8b"), release)
    assert total_s(rival, task((500, 0))) == pytest.approx(total_s(device("a800_clean"), task((500, 0))))


def test_smaller_chunks_cost_more() -> None:
    clean = device("a800_clean")

    def chunked_s(chunk: int, tokens: int = 16384) -> float:
        steps = [
            Task(0, TaskKind.PREFILL, (Sequence("r", start, chunk, start + chunk == tokens),))
            for start in range(0, tokens, chunk)
        ]
        return sum(total_s(clean, step) for step in steps)

    costs = [chunked_s(2**power) for power in range(8, 15)]
    assert costs == sorted(costs, reverse=True)
    assert 1.3 < costs[0] / costs[-1] < 1.6  # 256
    assert 1.0 < costs[3] / costs[-1] < 1.1  # 2048


def test_a_ragged_chunk_computes_whole_tiles() -> None:
    clean = device("a800_clean")
    assert total_s(clean, task((256, 4096))) < 0.85 * total_s(clean, task((257, 4096)))


@pytest.mark.parametrize("name", ROOFLINES)
@pytest.mark.parametrize("model", MODELS)
def test_more_rows_or_more_context_never_take_less(name: str, model: str) -> None:
    given = device(name, model)
    rows = [total_s(given, task((n, 512))) for n in (1, 2, 17, 127, 128, 129, 255, 512, 513, 900, 2048, 5000, 16384)]
    context = [total_s(given, task((300, x))) for x in (0, 1, 100, 511, 512, 4096, 9999, 16384)]
    batch = [total_s(given, task(*[(64, 8)] * count, (700, 0))) for count in range(6)]
    for times in (rows, context, batch):
        assert all(shorter <= longer * (1 + 1e-12) for shorter, longer in pairwise(times))


def test_a_batch_costs_less_than_its_members_alone() -> None:
    clean = device("a800_clean")
    assert total_s(clean, task((100, 0), (100, 0), (100, 0))) < 0.8 * 3 * total_s(clean, task((100, 0)))


def test_decode_steps_read_the_weights_once() -> None:
    clean = device("a800_clean")
    one, many = (total_s(clean, task(*[(1, 1000)] * n, kind=TaskKind.DECODE_STEP)) for n in (1, 32))
    weights_s = 2 * (rank_weights(load_shape("llama3_8b"), 1) - 128256 * 4096) / 2.039e12
    assert weights_s < one < 1.5 * weights_s
    assert one < many < 1.3 * one


def residual_s(program: TimedProgram) -> float:
    """Expected rest of the current part for a random arrival: sum t^2 / (2 sum t)."""
    parts = np.add.reduceat(program.seconds, np.flatnonzero(program.boundary))
    return float((parts**2).sum() / (2 * parts.sum()))


@pytest.mark.parametrize("name", ["a800_release", "a800_clean"])
@pytest.mark.parametrize("model", ["llama3_8b", "qwen2_5_14b"])
@pytest.mark.parametrize("tokens", [2048, 4096, 8192, 16384])
def test_finer_boundaries_shorten_the_rest_as_flop_shares_say(name: str, model: str, tokens: int) -> None:
    layer, half, operator = (
        residual_s(device(name, model, granularity).program(task((tokens, 0))))
        for granularity in (Granularity.LAYER, Granularity.HALF_LAYER, Granularity.OPERATOR)
    )
    # Own arithmetic from FLOP shares: 3.0-3.8 and 1.5-2.0. Two ranks also sum after o_proj and down_proj, the shorter
    # operators, which evens the five out: up to 4.15.
    assert 3.0 <= layer / operator <= (3.8 if model == "llama3_8b" else 4.15)
    assert 1.5 <= layer / half <= 2.0


@pytest.mark.parametrize(
    ("model", "billions"),
    [("llama3_8b", 8.03), ("qwen2_5_14b", 14.77), ("llama3_70b", 70.55), ("qwen3_30b_a3b", 30.53)],
)
def test_shapes_have_the_published_number_of_weights(model: str, billions: float) -> None:
    assert rank_weights(load_shape(model), 1) / 1e9 == pytest.approx(billions, abs=0.005)


POOLS = {"llama3_8b": 369008, "qwen2_5_14b": 505136, "llama3_70b": 355824, "qwen3_30b_a3b": 689344}


@pytest.mark.parametrize("model", MODELS)
def test_kv_pools_are_the_memory_left_on_an_a800(model: str) -> None:
    stated = OmegaConf.load(ROOT / "conf" / "model" / f"{model}.yaml")
    ranks = stated.get("tensor_parallel") or 1
    assert ranks == MODELS[model]
    a800 = committed("a800_release")
    assert stated.kv_tokens in (None, POOLS[model])
    assert kv_pool_tokens(load_shape(model), a800, ranks, 2, stated.block_tokens) == POOLS[model]


def test_a_kv_pool_by_hand() -> None:
    # Weights: 2 layers x (qkv 192 + o 64 + MLP 384 + norms 16) + embedding and head 512 + norm 8 = 1832 of 2 bytes.
    assert rank_weights(SHAPE, 1) == 1832
    # Left: 0.5 x 10 000 - 100 - 3664 bytes; a token keeps 2 x 8 x 2 layers x 2 bytes = 64: 19 tokens, 2 blocks of 8.
    parts = accelerator(memory_share=0.5, reserved_bytes=100)
    assert kv_pool_tokens(SHAPE, parts, 1, 2, 8) == 16
    with pytest.raises(ValueError, match="model toy leaves no memory for KV on 1 accelerator"):
        kv_pool_tokens(SHAPE, accelerator(memory_bytes=3700), 1, 2, 8)


@pytest.mark.parametrize("name", ROOFLINES)
def test_every_constant_says_where_it_comes_from(name: str) -> None:
    lines = (ROOT / "conf" / "device" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    inside = lines[lines.index("  accelerator:") + 1 :]
    assert len(inside) >= 15
    assert all(" # " in line for line in inside), name

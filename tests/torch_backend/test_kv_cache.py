import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.torch_backend.block_pool import BlockPool, KVExhaustedError
from engine.torch_backend.kv_cache import KVCache
from engine.torch_backend.models.llama import Llama
from tests.torch_backend.engine_run import new_cache


def test_a_run_is_preferred_and_the_shortest_that_fits() -> None:
    pool = BlockPool(10)
    first, _, third, _ = pool.take(3), pool.take(1), pool.take(2), pool.take(4)
    pool.give_back(first)
    pool.give_back(third)
    assert pool.take(2) == (4, 5)
    assert pool.take(2) == (0, 1)


def test_without_a_run_the_longest_ones_are_joined() -> None:
    pool = BlockPool(6)
    taken = [pool.take(1) for _ in range(6)]
    for block in (0, 2, 3, 5):
        pool.give_back(taken[block])
    assert pool.take(3) == (2, 3, 0)
    pool.check([(2, 3, 0), (1,), (4,)])


def test_too_many_blocks_are_refused_and_nothing_changes() -> None:
    pool = BlockPool(3)
    with pytest.raises(KVExhaustedError, match="4 KV blocks are needed, 3 are free"):
        pool.take(4)
    assert pool.free_blocks == 3


@pytest.mark.parametrize("blocks", [(0,), (1, 2), (4,), (-1,)])
def test_freeing_what_is_free_is_an_error(blocks: tuple[int, ...]) -> None:
    pool = BlockPool(4)
    pool.take(2)
    pool.give_back((0,))
    with pytest.raises(ValueError, match="are free already"):
        pool.give_back(blocks)


def test_check_finds_lost_and_doubly_held_blocks() -> None:
    pool = BlockPool(4)
    taken = pool.take(2)
    pool.check([taken])
    with pytest.raises(AssertionError):
        pool.check([])
    with pytest.raises(AssertionError):
        pool.check([taken, taken])


@given(st.lists(st.one_of(st.integers(1, 9), st.none()), max_size=60), st.randoms(use_true_random=False))
def test_any_order_of_taking_and_giving_back_keeps_the_partition(steps: list[int | None], random: object) -> None:
    pool, held = BlockPool(23), list[tuple[int, ...]]()
    for count in steps:
        if count is not None and count <= pool.free_blocks:
            held.append(pool.take(count))
        elif held:
            pool.give_back(held.pop(random.randrange(len(held))))  # type: ignore[attr-defined]
        pool.check(held)
        assert pool.free_blocks == 23 - sum(map(len, held))
    for blocks in held:
        pool.give_back(blocks)
    assert pool.take(23) == tuple(range(23))


def test_slots_follow_the_blocks(tiny: Llama) -> None:
    cache = KVCache(tiny.shape, 6, 4, torch.device("cpu"), torch.float32)
    for name in "abcdef":
        cache.allocate(name, 1)
    for name in "bdef":
        cache.free(name)
    cache.allocate("long", 16)
    assert cache.free_blocks == 0
    slots = cache.slots("long", 2, 14)
    assert isinstance(slots, torch.Tensor)
    assert slots.tolist() == [14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 4, 5]
    cache.free("long")
    cache.allocate("run", 9)
    assert cache.slots("run", 1, 3) == slice(13, 15)
    cache.check()


def test_a_view_is_read_where_blocks_lie_side_by_side(tiny: Llama) -> None:
    cache = new_cache(tiny)
    cache.allocate("a", 20)
    keys, _ = cache.read(1, "a", 10)
    assert keys.shape == (10, tiny.shape.kv_heads, tiny.shape.head_dim)
    assert keys.data_ptr() == cache.keys[1].data_ptr()


def test_positions_past_the_blocks_held_are_an_error(tiny: Llama) -> None:
    cache = new_cache(tiny, block_tokens=8)
    cache.allocate("a", 9)
    assert cache.slots("a", 0, 16) == slice(0, 16)
    with pytest.raises(ValueError, match="request a needs 17 KV positions, it holds 16"):
        cache.slots("a", 0, 17)


def test_allocating_twice_is_an_error_and_freeing_twice_is_not(tiny: Llama) -> None:
    cache = new_cache(tiny)
    cache.allocate("a", 9)
    with pytest.raises(ValueError, match="holds KV blocks already"):
        cache.allocate("a", 9)
    cache.free("a")
    cache.free("a")
    assert cache.free_blocks == 64

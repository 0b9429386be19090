"""Prompts: exact lengths, range, determinism, disjoint content, speed."""

import time
import tracemalloc

import pytest

from workloads.prompts import MARK_EVERY, PromptSettings, drawn_prompts, make_prompts

SETTINGS = PromptSettings(vocab=4096, low=16)
BLOCK = 16
PINNED = [(623, 1153, 1797), (943, 397)]


def blocks(prompts):
    return {(p[:end]) for p in prompts for end in range(BLOCK, len(p) + 1, BLOCK)}


def test_c38_prompts_have_the_lengths_asked_and_ids_in_range():
    lengths = [1, 2, 500, 17]
    prompts = make_prompts(lengths, SETTINGS, seed=0)
    assert [len(prompt) for prompt in prompts] == lengths
    ids = [token for prompt in prompts for token in prompt]
    assert min(ids) >= 16
    assert max(ids) < 4096


def test_every_id_of_the_range_can_come():
    ids = {token for prompt in make_prompts([200] * 10, PromptSettings(vocab=8, low=5), seed=0) for token in prompt}
    assert ids == {5, 6, 7}


def test_prompts_are_the_same_for_the_same_seed():
    assert make_prompts([40, 3], SETTINGS, 7) == make_prompts([40, 3], SETTINGS, 7)


def test_the_draws_are_those_of_one_stream_whatever_is_looked_at_first():
    """The ids themselves: another version that drew others would measure other points under the same names."""
    assert make_prompts([3, 2], PromptSettings(4096, 16, "x"), 7) == PINNED
    lengths = [1 + index % 9 for index in range(3 * MARK_EVERY)]
    whole = make_prompts(lengths, SETTINGS, 7)
    for order in (range(len(lengths)), reversed(range(len(lengths))), (150, 3, 3, 191, 64, 63, 128, 0)):
        prompts = drawn_prompts(lengths, SETTINGS, 7)
        for index in order:
            assert (len(prompts[index]), tuple(prompts[index])) == (lengths[index], whole[index])
    assert prompts[5] == whole[5] == tuple(prompts[5][:])
    assert hash(prompts[5]) == hash(whole[5])
    assert prompts[5] != prompts[6]


def test_c50_no_two_requests_share_a_prefix_within_a_run():
    prompts = make_prompts([64] * 327, SETTINGS, seed=0)
    assert len({prompt[0] for prompt in prompts}) == 327


@pytest.mark.parametrize(
    ("one", "two"),
    [((SETTINGS, 0), (SETTINGS, 1)), ((SETTINGS, 0), (PromptSettings(4096, 16, "rate 2"), 0))],
    ids=["seeds", "points"],
)
def test_c50_seeds_and_points_share_no_block_of_content(one, two):
    lengths = [64] * 327
    first, second = make_prompts(lengths, *one), make_prompts(lengths, *two)
    assert len(blocks(first)) == 327 * 4
    assert not blocks(first) & blocks(second)


def test_327_prompts_of_4096_tokens_take_well_under_a_second():
    started = time.process_time()
    make_prompts([4096] * 327, SETTINGS, seed=0)
    assert time.process_time() - started < 1.0


def test_prompts_that_nobody_looks_at_take_no_memory():
    """As lists they would be 800 MB; walking along them keeps one at a time, and a mark of the stream now and then."""
    tracemalloc.start()
    try:
        prompts = drawn_prompts([1000] * 100_000, SETTINGS, seed=0)
        for prompt in prompts[: 20 * MARK_EVERY]:
            tuple(prompt)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("low", "vocab"), [(16, 16), (-1, 10), (20, 10)])
def test_an_empty_range_is_refused(low, vocab):
    with pytest.raises(ValueError, match="0 <= low < vocab"):
        PromptSettings(vocab=vocab, low=low)


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match="the seed must be at least 0, got -1"):
        make_prompts([3], SETTINGS, -1)

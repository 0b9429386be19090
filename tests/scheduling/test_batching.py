"""Walks of SLO-aware batching worked out by hand. A token takes 1000 ns."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.ports import ItemState, Share
from engine.scheduling.batching import NoBatching, SLOAwareBatching
from tests.scheduling.rig import TokenPredictor, always, item


def taken(batching: SLOAwareBatching | NoBatching, *items: object, now_ns: int = 0, fits: object = always) -> list[int]:
    shares = batching.select(list(items), fits, TokenPredictor(), now_ns)  # type: ignore[arg-type]
    assert all(share.tokens == share.item.new_tokens for share in shares)
    return [share.item.key for share in shares]


def within(tokens: int) -> object:
    def fits(shares: Sequence[Share]) -> bool:
        return sum(share.tokens for share in shares) <= tokens

    return fits


FAR = 10**9


def test_the_walk_takes_in_order_what_fits_the_token_bound() -> None:
    batching = SLOAwareBatching(0.1, 100)
    items = [item(1, FAR, tokens=40), item(2, FAR, tokens=50), item(3, FAR, tokens=20), item(4, FAR, tokens=10)]
    # 40 + 50 = 90; 20 more is too many and is passed over; 10 fills it.
    assert taken(batching, *items) == [1, 2, 4]


def test_the_time_bound_leaves_the_head_alpha_of_its_slo() -> None:
    # Due at 1 000 000 with an SLO of 1 000 000 and alpha 0.1: the batch must end by 900 000, that is 900 tokens.
    head = item(1, 1_000_000, tokens=500, slo=1_000_000)
    assert taken(SLOAwareBatching(0.1, 5000), head, item(2, FAR, tokens=400)) == [1, 2]
    assert taken(SLOAwareBatching(0.1, 5000), head, item(2, FAR, tokens=401)) == [1]
    assert taken(SLOAwareBatching(0.1, 5000), head, item(2, FAR, tokens=400), now_ns=1) == [1]
    assert taken(SLOAwareBatching(0.0, 5000), head, item(2, FAR, tokens=500)) == [1, 2]


def test_the_first_that_breaks_the_time_bound_ends_the_walk() -> None:
    head = item(1, 1_000_000, tokens=500, slo=1_000_000)
    assert taken(SLOAwareBatching(0.1, 5000), head, item(2, FAR, tokens=450), item(3, FAR, tokens=10)) == [1]


def test_the_time_bound_ends_the_walk_also_where_memory_is_short() -> None:
    def without_the_second(shares: Sequence[Share]) -> bool:
        return all(share.item.key != 2 for share in shares)

    head = item(1, 1_000_000, tokens=500, slo=1_000_000)
    others = [item(2, FAR, tokens=300), item(3, FAR, tokens=450), item(4, FAR, tokens=10)]
    # The second would be in time but has no memory, the third has memory but would be late.
    assert taken(SLOAwareBatching(0.1, 5000), head, *others, fits=without_the_second) == [1]


def test_what_does_not_fit_in_memory_is_passed_over() -> None:
    items = [item(1, FAR, tokens=10), item(2, FAR, tokens=90), item(3, FAR, tokens=15), item(4, FAR, tokens=6)]
    assert taken(SLOAwareBatching(0.1, 500), *items, fits=within(30)) == [1, 3]
    assert taken(SLOAwareBatching(0.1, 500), *items, fits=within(9)) == []
    assert taken(NoBatching(), *items, fits=within(9)) == []
    assert taken(NoBatching(), *items, fits=within(10)) == [1]


@pytest.mark.parametrize(
    "head",
    [
        item(1, FAR, tokens=101),  # longer than the bound
        item(1, FAR, tokens=100),  # fills the bound
        item(1, FAR, tokens=10, context=50),  # the rest of a chunked prompt
        item(1, 1_000_000, tokens=10, slo=1_000_000),  # at 950 000 it has less than alpha of its SLO left
    ],
)
def test_a_head_that_goes_alone(head: object) -> None:
    assert taken(SLOAwareBatching(0.1, 100), head, item(2, FAR, tokens=1), now_ns=950_000) == [1]


def test_only_new_waiting_requests_ride() -> None:
    items = [
        item(1, FAR, tokens=1),
        item(2, FAR, tokens=1, state=ItemState.PREEMPTED),
        item(3, FAR, tokens=1, state=ItemState.EXECUTING),
        item(4, FAR, tokens=1, context=8),
        item(5, FAR, tokens=1),
    ]
    assert taken(SLOAwareBatching(), *items) == [1, 5]


def test_a_head_without_slo_is_bounded_as_if_due_after_30_s() -> None:
    head = item(1, 30 * 10**9, tokens=10, slo=None)
    assert taken(SLOAwareBatching(0.1, 10**8), head, item(2, FAR, tokens=26_999_990)) == [1, 2]
    assert taken(SLOAwareBatching(0.1, 10**8), head, item(2, FAR, tokens=26_999_991)) == [1]


@pytest.mark.parametrize(("alpha", "bound"), [(-0.1, 5), (1.1, 5), (0.1, 0)])
def test_settings_out_of_range(alpha: float, bound: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        SLOAwareBatching(alpha, bound)


@settings(max_examples=300)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=30),
    bound=st.integers(1, 300),
    slo=st.integers(1, 400_000),
    memory=st.integers(1, 500),
)
def test_bisection_finds_what_asking_one_by_one_finds(lengths: list[int], bound: int, slo: int, memory: int) -> None:
    items = [item(key, slo if key == 0 else FAR, tokens=n, slo=slo if key == 0 else 5) for key, n in enumerate(lengths)]
    expected: list[int] = []
    if lengths[0] <= memory:
        expected, total = [0], lengths[0]
        for key, tokens in enumerate(lengths[1:], start=1):
            if total >= bound or slo - int(0.1 * slo) < 0:
                break
            if total + tokens > bound or total + tokens > memory:
                continue
            if 1000 * (total + tokens) > slo - int(0.1 * slo):
                break
            expected.append(key)
            total += tokens
    assert taken(SLOAwareBatching(0.1, bound), *items, fits=within(memory)) == expected


def test_a_batch_of_k_is_priced_log_k_times() -> None:
    predictor = TokenPredictor()
    items = [item(key, FAR, tokens=2) for key in range(1000)]
    assert len(SLOAwareBatching(0.1, 2048).select(items, always, predictor, 0)) == 1000
    assert predictor.asked <= 11

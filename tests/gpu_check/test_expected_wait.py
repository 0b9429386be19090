from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.gpu_check.expected_wait import expected_wait
from tests.torch_backend.fake_device import Device, launch_all


def waits_ns(took_ns: Sequence[int], boundary: Sequence[bool], bound_ns: int, step_ns: int) -> list[int]:
    """What pauses every `step_ns` wait, with the launches that the window itself makes on a device."""
    device = Device()
    launch_all(device, device.window(bound_ns), list(took_ns))
    found = []
    for asked_at_ns in range(0, device.ends_ns[-1], step_ns):
        heard = [
            i
            for i, (at_ns, may_stop) in enumerate(zip(device.launched_at_ns, boundary, strict=True))
            if may_stop and at_ns > asked_at_ns
        ]
        stopped_at_ns = device.ends_ns[heard[0]] if heard else device.ends_ns[-1]
        found.append(stopped_at_ns - asked_at_ns)
    return found


def test_without_launching_ahead_it_is_the_formula() -> None:
    found = expected_wait([3.0, 1.0, 2.0], [True] * 3, bound_s=0.0)
    assert found.formula_s == (9 + 1 + 4) / (2 * 6)
    assert (found.queued_s, found.longest_s) == (pytest.approx(0), 3.0)


def test_operators_between_two_boundaries_count_as_one() -> None:
    found = expected_wait([1.0, 2.0, 3.0], [True, False, True], bound_s=0.0)
    assert found.mean_s == pytest.approx((9 + 9) / (2 * 6))
    assert found.longest_s == 3.0


def test_what_is_launched_ahead_is_waited_for_too() -> None:
    # Each is launched 1 s before the one before it ends: for that second a pause waits for the next one, too.
    found = expected_wait([4.0, 4.0], [True, True], bound_s=1.0)
    assert found.formula_s == 2.0
    # Asked in [0, 3) it stops at 4, in [3, 8) at 8: (3 x 2.5 + 5 x 2.5) / 8.
    assert found.mean_s == pytest.approx((3 * 2.5 + 5 * 2.5) / 8)


def test_a_host_slower_than_its_device_has_nothing_in_flight() -> None:
    found = expected_wait([1.0] * 50, [True] * 50, bound_s=100.0, launch_s=2.0)
    assert found.mean_s == pytest.approx(1.0, rel=0.05)  # the next launch is 0 to 2 s away, all before it has ended


@settings(max_examples=40)
@given(
    took_us=st.lists(st.integers(20, 3000), min_size=1, max_size=12),
    bound_us=st.integers(100, 4000),
    data=st.data(),
)
def test_it_is_what_the_launch_window_does(took_us: list[int], bound_us: int, data: st.DataObject) -> None:
    boundary = [True, *data.draw(st.lists(st.booleans(), min_size=len(took_us) - 1, max_size=len(took_us) - 1))]
    took_ns = [1000 * each for each in took_us]
    total_ns = sum(took_ns)
    waited = waits_ns(took_ns, boundary, 1000 * bound_us, max(1, total_ns // 2000))
    expected = expected_wait([each / 1e9 for each in took_ns], boundary, bound_us / 1e6)
    assert sum(waited) / len(waited) / 1e9 == pytest.approx(expected.mean_s, rel=0.02, abs=1e-6)
    assert max(waited) / 1e9 <= bound_us / 1e6 + expected.longest_s + 1e-6

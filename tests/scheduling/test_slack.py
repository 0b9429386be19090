import pytest

from engine.core.request import Request
from engine.core.slo import SLO
from engine.scheduling.slack import deadline_member, feasible, remaining_ns, slack_ns
from tests.scheduling.rig import item


def member(name: str, due_at_ns: int | None) -> Request:
    """A request that arrived at 0 and is due then; None: states no SLO."""
    return Request(name, ord(name), 0, 10, 1, SLO(due_at_ns))


@pytest.mark.parametrize(("predicted", "executed", "left"), [(100, 0, 100), (100, 30, 70), (100, 100, 0), (9, 250, 0)])
def test_remaining_is_never_negative(predicted: int, executed: int, left: int) -> None:
    assert remaining_ns(predicted, executed) == left


@pytest.mark.parametrize(
    ("due", "remaining", "now", "slack", "in_time"),
    [(1000, 300, 200, 500, True), (1000, 300, 699, 1, True), (1000, 300, 700, 0, False), (1000, 300, 900, -200, False)],
)
def test_slack_is_what_is_left_beyond_the_work(due: int, remaining: int, now: int, slack: int, in_time: bool) -> None:
    work = item(1, due_at_ns=due, remaining_ns=remaining)
    assert slack_ns(work, now) == slack
    assert feasible(work, now) is in_time


@pytest.mark.parametrize(
    ("ends_at", "expected"),
    [
        (100, "b"),  # all in time: the earliest
        (200, "a"),  # due exactly at the end is too late: b is lost, the next one counts
        (350, "c"),
        (400, "c"),  # all lost: the latest
        (9000, "c"),
    ],
)
def test_earliest_live_is_the_earliest_deadline_that_can_still_be_met(ends_at: int, expected: str) -> None:
    members = [member("a", 300), member("b", 200), member("c", 400)]
    assert deadline_member(members, "earliest_live", ends_at).request_id == expected
    assert deadline_member(members, "head", ends_at).request_id == "a"


def test_members_without_slo_count_only_among_themselves() -> None:
    with_slo, without = member("a", 10**12), member("b", None)
    assert deadline_member([without, with_slo], "earliest_live", 0) is with_slo
    assert deadline_member([without, with_slo], "head", 0) is without
    later = Request("c", 9, 5, 10)
    assert deadline_member([later, without], "earliest_live", 10**15) is without

"""Which instance gets a request, by numbers worked out by hand."""

import pytest

from engine.scheduling.kv_ledger import LedgerError
from engine.scheduling.routing.catalogue import ROUTERS
from engine.scheduling.routing.decode_room import DecodeRoom, Place
from engine.scheduling.routing.least_predicted_slack import LeastPredictedSlack
from engine.scheduling.routing.most_predicted_slack import MostPredictedSlack
from engine.scheduling.routing.prefill_queues import PrefillQueues
from engine.scheduling.routing.round_robin import RoundRobin
from engine.scheduling.routing.router import Candidate, Prompt, predicted_slack_ns

QUEUES = (
    Candidate(0, (Prompt(100, 30), Prompt(500, 200))),
    Candidate(1, (Prompt(90, 60),)),
    Candidate(2),
)


def test_slack_counts_what_is_due_no_later() -> None:
    # Due at 200, now 50: 150 to go; 20 of its own; 30, 60 and 0 ahead.
    assert [predicted_slack_ns(each, Prompt(200, 20), 50) for each in QUEUES] == [100, 70, 130]


@pytest.mark.parametrize(
    ("prompt", "least", "most"),
    [
        (Prompt(200, 20), 1, 2),
        (Prompt(130, 30), 0, 2),  # slacks 20, -10, 50: on instance 1 it would be late
        (Prompt(105, 60), 2, 2),  # slacks -35, -65, -5: late everywhere, on instance 2 the least
        (Prompt(600, 10), 0, 2),  # slacks 310, 480, 540
    ],
)
def test_best_fit_and_worst_fit(prompt: Prompt, least: int, most: int) -> None:
    assert LeastPredictedSlack().choose(QUEUES, prompt, 50) == least
    assert MostPredictedSlack().choose(QUEUES, prompt, 50) == most


def test_equal_instances_are_taken_from_the_first_on() -> None:
    equal = (Candidate(3), Candidate(5))
    for late in (False, True):
        prompt = Prompt(0 if late else 100, 10)
        assert LeastPredictedSlack().choose(equal, prompt, 50) == 3
        assert MostPredictedSlack().choose(equal, prompt, 50) == 3


def test_round_robin_passes_over_what_is_not_there() -> None:
    router, prompt = RoundRobin(), Prompt(1, 1)
    chosen = [router.choose(QUEUES, prompt, 0) for _ in range(4)]
    assert chosen == [0, 1, 2, 0]
    assert router.choose(QUEUES[2:], prompt, 0) == 2
    assert router.choose(QUEUES[1:], prompt, 0) == 1


def test_queues_hold_a_request_until_its_first_token() -> None:
    queues = PrefillQueues(MostPredictedSlack())
    assert [queues.route(name, Prompt(1000, 10), (0, 1), 0) for name in "abc"] == [0, 1, 0]
    queues.leave("a")
    queues.leave("c")
    assert queues.route("d", Prompt(1000, 10), (0, 1), 0) == 0
    assert queues.route("e", Prompt(1000, 10), (1,), 0) == 1
    queues.leave("nobody")


def test_every_router_of_the_catalogue_takes_the_only_instance() -> None:
    for router in ROUTERS.values():
        assert router().choose((Candidate(7),), Prompt(10, 20), 5) == 7


def test_decode_instances_by_turns_among_those_with_room() -> None:
    room = DecodeRoom((10, 4))
    for name, blocks in (("a", 4), ("b", 4), ("c", 4), ("d", 4), ("e", 1)):
        room.ask(name, blocks)
    # d finds no room, and e does not overtake it.
    assert room.place((0, 1)) == [Place("a", 0), Place("b", 1), Place("c", 0)]
    assert (room.free_blocks, room.waiting) == ((2, 0), 2)
    room.leave("b")
    assert room.place((0,)) == []
    assert room.place((0, 1)) == [Place("d", 1), Place("e", 0)]
    for name in "abcde":
        room.leave(name)
        room.leave(name)
    assert (room.free_blocks, room.waiting) == ((10, 4), 0)


def test_one_that_leaves_while_it_waits_makes_way() -> None:
    room = DecodeRoom((4,))
    for name in ("a", "b", "c"):
        room.ask(name, 3)
    assert room.place((0,)) == [Place("a", 0)]
    room.leave("b")
    room.leave("a")
    assert room.place((0,)) == [Place("c", 0)]
    with pytest.raises(LedgerError, match="asks twice"):
        room.ask("c", 1)

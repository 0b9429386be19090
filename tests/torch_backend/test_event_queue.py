import threading

from engine.core.events import Arrival, Cancelled, Completion, KVReleased, Woken
from engine.core.request import Request
from engine.torch_backend.clock import MonotonicClock
from engine.torch_backend.event_queue import EventQueue


def test_all_pending_come_in_one_sorted_list_with_numbers_in_order_of_put() -> None:
    queue = EventQueue()
    queue.put(Arrival(5, 0, Request("a", 0, 5, 3)))
    queue.put(KVReleased(5, 0, "b"))
    queue.put(Completion(5, 0, 1, 9, ()))
    queue.put(Cancelled(4, 0, "c"))
    assert [(type(e).__name__, e.event_seq) for e in queue.wait()] == [
        ("Cancelled", 3),
        ("Completion", 2),
        ("KVReleased", 1),
        ("Arrival", 0),
    ]


def test_a_cancellation_comes_after_its_arrival_even_when_the_clock_was_set_back() -> None:
    queue = EventQueue()
    queue.put(Arrival(5, 0, Request("a", 0, 5, 3)))
    queue.put(Cancelled(2, 0, "a"))
    queue.put(Cancelled(3, 0, "b"))
    assert [(type(e).__name__, e.at_ns) for e in queue.wait()] == [("Cancelled", 3), ("Arrival", 5), ("Cancelled", 6)]
    queue.put(Cancelled(4, 0, "a"))
    assert queue.wait()[0].at_ns == 4


def test_wait_blocks_until_another_thread_puts() -> None:
    queue = EventQueue()
    taken: list[object] = []
    waiter = threading.Thread(target=lambda: taken.extend(queue.wait()), daemon=True)
    waiter.start()
    queue.put(Cancelled(1, 0, "a"))
    waiter.join(120)
    assert taken == [Cancelled(1, 0, "a")]


def test_close_hands_out_what_is_pending_then_empty_lists() -> None:
    queue = EventQueue()
    queue.put(Cancelled(1, 0, "a"))
    queue.close()
    queue.put(Cancelled(2, 0, "late"))
    assert queue.wait() == [Cancelled(1, 0, "a")]
    assert queue.wait() == []
    assert queue.wait() == []


def test_close_wakes_a_waiter() -> None:
    queue = EventQueue()
    taken: list[object] = [None]
    waiter = threading.Thread(target=lambda: taken.__setitem__(0, queue.wait()), daemon=True)
    waiter.start()
    queue.close()
    waiter.join(120)
    assert taken == [[]]


def test_numbers_from_many_threads_are_unique() -> None:
    queue = EventQueue()
    threads = [
        threading.Thread(target=lambda: [queue.put(Cancelled(1, 0, "x")) for _ in range(200)], daemon=True)
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.event_seq for event in queue.wait()] == list(range(800))


def test_the_clock_never_goes_back() -> None:
    clock = MonotonicClock()
    stamps = [clock.now_ns() for _ in range(1000)]
    assert stamps == sorted(stamps)


def test_an_alarm_wakes_who_waits() -> None:
    queue, clock = EventQueue(), MonotonicClock()
    at_ns = clock.now_ns() + 20_000_000
    queue.wake_at(at_ns + 10**12)
    queue.wake_at(at_ns)
    (event,) = queue.wait()
    assert isinstance(event, Woken)
    assert (event.at_ns, clock.now_ns() >= at_ns) == (at_ns, True)


def test_an_alarm_of_the_past_comes_at_once() -> None:
    queue = EventQueue()
    queue.wake_at(0)
    assert [event.at_ns for event in queue.wait()] == [0]
    queue.close()
    assert queue.wait() == []

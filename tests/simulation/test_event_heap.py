from engine.core.events import Cancelled, KVReleased
from engine.simulation.event_heap import EventHeap


def filled(instants: list[int]) -> EventHeap:
    heap = EventHeap()
    for at_ns in instants:
        heap.put(KVReleased(at_ns, heap.number(), f"r{at_ns}"))
    return heap


def test_what_is_due_comes_in_order_and_once() -> None:
    heap = filled([30, 10, 20, 10])
    heap.put(Cancelled(10, heap.number(), "c"))  # put last, but before released KV at one instant
    assert heap.next_at_ns == 10
    assert [(e.at_ns, e.request_id) for e in heap.take_until(25)] == [(10, "c"), (10, "r10"), (10, "r10"), (20, "r20")]
    assert heap.take_until(25) == []
    assert len(heap) == 1


def test_what_is_withdrawn_does_not_happen() -> None:
    heap = filled([1, 2, 3])
    heap.withdraw(0)
    heap.withdraw(2)
    assert len(heap) == 1
    assert heap.next_at_ns == 2
    assert [event.at_ns for event in heap.take_until(9)] == [2]
    assert heap.next_at_ns is None


def test_withdrawn_events_do_not_pile_up() -> None:
    heap = filled([10**9])
    for at_ns in range(10_000):
        heap.put(Cancelled(10**8 + at_ns, seq := heap.number(), "x"))
        heap.withdraw(seq)
    assert len(heap) == 1
    assert len(heap._entries) < 200
    assert [event.at_ns for event in heap.take_until(10**10)] == [10**9]

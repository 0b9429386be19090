"""Bodies are made ahead as far as they fit, and given in order whatever was made when."""

from hypothesis import given
from hypothesis import strategies as st

from harness.loadgen.bodies import Bodies
from harness.loadgen.request_body import prepare
from tests.fakes.golden_script import noop
from tests.loadgen.rig import plans, played, settings, target

TARGET = target("http://127.0.0.1:9")


def bodies(count: int, ahead_bytes: int) -> Bodies:
    return Bodies(plans(count), TARGET, settings(), ahead_bytes)


def test_a_short_run_has_all_of_them_before_its_clock_starts():
    made = bodies(5, 1 << 20)
    assert not made.make_one()
    assert [made.take().plan.request_id for _ in range(5)] == [f"r{index}" for index in range(5)]
    assert not made.make_one()


@given(steps=st.lists(st.booleans(), max_size=40), ahead_bytes=st.integers(0, 700))
def test_any_order_of_making_and_taking_gives_each_once_and_holds_no_more_than_allowed(steps, ahead_bytes):
    count = 12
    made, expected = bodies(count, ahead_bytes), [prepare(plan, TARGET, settings()) for plan in plans(count)]
    longest = max(len(one.body) for one in expected)
    taken = []
    for make in [*steps, *[False] * count]:
        if make:
            made.make_one()
        elif len(taken) < count:
            taken.append(made.take())
        assert sum(len(one.body) for one in made._made) < ahead_bytes + longest
    assert taken == expected


def test_a_run_longer_than_its_room_sends_every_body(monkeypatch):
    monkeypatch.setattr(Bodies.__init__, "__defaults__", (300,))
    result, server = played(noop(), plans(50, gap_ms=1))
    assert len(result.records) == 50
    assert all(record.status == "ok" for record in result.records)
    assert [record.request_id for record in result.records] == [f"r{index}" for index in range(50)]
    assert len(server.seen) == 50

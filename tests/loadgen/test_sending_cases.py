"""Sending the load over real sockets: the cases reported against peers."""

import asyncio
import json
import time

import pytest

from engine.core.record import Status
from harness.loadgen import client as client_module
from harness.loadgen.player import play
from harness.loadgen.request_body import PreparedRequest
from tests.fakes.golden_script import (
    Script,
    Seen,
    after,
    capacity,
    complete,
    events,
    in_turn,
    never,
    noop,
    once,
    refused,
    token,
)
from tests.loadgen.rig import MS, RUN_S, SURELY_S, plan, plans, play_against, played, run, settings, target


def statuses(result) -> list[Status]:
    return [record.status for record in result.records]


def test_c17_waiting_inside_the_client_counts_in_ttft():
    result, server = played(after(0.1), plans(8, gap_ms=20), max_in_flight=1)
    assert statuses(result) == [Status.OK] * 8
    ttft_ms = [(record.first_token_at_ns - record.due_at_ns) / MS for record in result.records]
    # Request k is served k-th: (k + 1) x 100 ms of service, less the k x 20 ms it was due later.
    for index, value in enumerate(ttft_ms):
        assert value >= 100 * (index + 1) - 20 * index
    assert ttft_ms[-1] <= result.client.wall_ns / MS - 20 * 7
    assert result.records[-1].sent_at_ns - result.records[-1].due_at_ns > 500 * MS
    assert result.client.sender_lag_max_ns > 500 * MS
    assert all(
        later.arrived_at_ns >= earlier.ended_at_ns for earlier, later in zip(server.seen, server.seen[1:], strict=False)
    )


def test_c19_three_hundred_at_once_are_all_in_flight():
    all_are_here = asyncio.Event()

    def hold(seen: Seen) -> Script:
        if seen.index == 299:
            all_are_here.set()
        return once(all_are_here)(seen)

    # A hidden limit would hold the next request back until the first answer, which would never come.
    result, server = played(hold, plans(300))
    assert len(server.seen) == 300
    assert statuses(result) == [Status.OK] * 300


@pytest.mark.parametrize("write_ms", [0, 5])
def test_c20_what_large_bodies_cost_the_sender_is_in_its_lag(write_ms: int, monkeypatch: pytest.MonkeyPatch):
    stamped_at_ns: dict[str, int] = {}
    real = client_module._stamp_sent

    async def slow_stamp(session, context, chunk) -> None:
        _burn(write_ms / 1000)  # as if handing 400 KB to the socket took this long
        await real(session, context, chunk)
        exchange = context.trace_request_ctx
        stamped_at_ns[exchange.prepared.plan.request_id] = exchange.sent_at_ns

    monkeypatch.setattr(client_module, "_stamp_sent", slow_stamp)
    result, server = played(after(0.0), [plan(index, tokens=80_000) for index in range(64)])
    assert statuses(result) == [Status.OK] * 64
    assert all(len(seen.body) > 400_000 for seen in server.seen)
    # The stated instants are those of the bodies' writing, and none of them is after the server had the request.
    assert all(seen.ended_at_ns >= stamped_at_ns[seen.headers["x-request-id"]] for seen in server.seen)
    assert result.client.sender_lag_max_ns >= 64 * write_ms * MS
    assert result.client.sender_lag_max_ns == max(record.sent_at_ns for record in result.records)


def test_c21_a_busy_event_loop_shows_in_loop_lag_sender_lag_and_cpu():
    def respond(seen: Seen) -> Script:
        if seen.index == 10:
            _burn(0.3)  # the fake shares the client's loop
        return after(0.0)(seen)

    client = played(respond, plans(40, gap_ms=10), lead_in_s=0.05)[0].client
    assert client.loop_lag_max_ns > 200 * MS
    assert client.sender_lag_max_ns > 200 * MS
    assert client.cpu_share * (client.wall_ns / 1e9 + 0.05) >= 0.3


def _burn(cpu_s: float) -> None:
    """Hold the event loop for this much CPU time, or more of the wall's on a busy machine."""
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        pass


def test_c23_a_time_out_is_explicit_and_a_miss():
    with pytest.raises(TypeError):
        type(settings())(drain_s=1.0)
    result, server = played(never_and_slow(), plans(2), request_timeout_s=SURELY_S)
    assert statuses(result) == [Status.TIMED_OUT] * 2
    assert all("2 s after it was sent" in record.reason for record in result.records)
    assert [record.first_token_at_ns is not None for record in result.records] == [False, True]
    assert all(seen.left_at_ns is not None for seen in server.seen)


def never_and_slow():
    return in_turn(never(), events((0.0, token()), (60.0, token())))


def test_giving_up_aborts_the_request_and_only_before_the_first_token():
    started_late = events((0.0, token()), (SURELY_S + 0.2, token(finish="length")))
    requests = plans(3, gap_ms=10, max_tokens=2, ttft_ms=SURELY_S * 1000 / 5)
    result, server = played(
        in_turn(never(), started_late, lambda seen: complete(seen)), requests, give_up_slo_multiple=5
    )
    assert statuses(result) == [Status.GAVE_UP, Status.OK, Status.OK]
    assert "5 x TTFT SLO" in result.records[0].reason
    assert server.seen[0].left_at_ns is not None
    assert result.client.wall_ns >= SURELY_S * 1000 * MS


def test_giving_up_while_waiting_for_a_slot_is_unsent():
    # The second one gives up when the third would, too.
    requests = plans(3, ttft_ms=SURELY_S * 1000 / 10)
    result, server = played(in_turn(after(0.0), never()), requests, max_in_flight=1, give_up_slo_multiple=10)
    assert statuses(result) == [Status.OK, Status.GAVE_UP, Status.UNSENT]
    assert len(server.seen) == 2


def test_without_an_slo_no_one_gives_up():
    result, _ = played(after(0.1), plans(1), give_up_slo_multiple=1)
    assert statuses(result) == [Status.OK]


def test_c26_bodies_are_built_before_the_clock_starts(monkeypatch: pytest.MonkeyPatch):
    from harness.loadgen import bodies, player

    built: list[int] = []
    started: list[int] = []
    real, paced = bodies.prepare, player.pace

    def slow_prepare(*words) -> PreparedRequest:
        time.sleep(0.005)
        one = real(*words)
        built.append(time.monotonic_ns())
        return one

    def pace_from(due_ns, start_ns, waker, meanwhile):
        started.append(start_ns)
        return paced(due_ns, start_ns, waker, meanwhile)

    monkeypatch.setattr(bodies, "prepare", slow_prepare)
    monkeypatch.setattr(player, "pace", pace_from)
    result, server = played(noop(), plans(30, gap_ms=1))
    assert len(built) == 30
    assert max(built) <= started[0] <= min(seen.arrived_at_ns for seen in server.seen)
    assert statuses(result) == [Status.OK] * 30


def test_c27_servers_that_never_answer_do_not_hang_the_run():
    limits = {"drain_s": SURELY_S, "request_timeout_s": 2 * RUN_S}
    result, _ = played(in_turn(never(), after(0.0)), plans(10, gap_ms=5), **limits)
    assert statuses(result) == [Status.UNFINISHED, Status.OK] * 5
    assert result.client.requests_sent == result.client.requests_due == 10


def test_c27_sent_and_unsent_make_the_scheduled():
    limits = {"drain_s": SURELY_S, "request_timeout_s": 2 * RUN_S, "max_in_flight": 2}
    result, server = played(never_(), plans(6, gap_ms=5), **limits)
    assert statuses(result) == [Status.UNFINISHED] * 2 + [Status.UNSENT] * 4
    unsent = statuses(result).count(Status.UNSENT)
    assert result.client.requests_sent == len(server.seen) == 2
    assert result.client.requests_sent + unsent == result.client.requests_due == 6
    assert all(record.reason for record in result.records)


def never_():
    return lambda _: never()


def test_c28_rejected_requests_are_records_and_nothing_is_retried():
    result, server = played(in_turn(refused(503), after(0.0)), plans(10, gap_ms=2))
    assert statuses(result).count(Status.REJECTED) == 5
    assert statuses(result).count(Status.OK) == 5
    assert len(server.seen) == 10
    assert {record.reason for record in result.records if record.status is Status.REJECTED} == {"HTTP 503: overloaded"}


@pytest.mark.parametrize(("status", "expected"), [(429, Status.REJECTED), (400, Status.FAILED), (500, Status.FAILED)])
def test_error_answers_keep_their_reason(status: int, expected: Status):
    result, _ = played(lambda _: refused(status, "why"), plans(1))
    assert (result.records[0].status, result.records[0].reason) == (expected, f"HTTP {status}: why")


def test_a_long_reason_becomes_one_short_line():
    result, _ = played(lambda _: refused(500, "line\n" * 500), plans(1))
    assert result.records[0].reason.startswith("HTTP 500: line line")
    assert len(result.records[0].reason) == 300


def test_c43_failures_stay_in_the_denominator():
    fail, fast = refused(500), after(0.0)
    respond = in_turn(*[fail] * 3, *[fast] * 2)
    result, _ = played(respond, plans(100, gap_ms=1, ttft_ms=10_000))
    assert len(result.records) == 100
    met = [r for r in result.records if r.status is Status.OK and r.first_token_at_ns - r.due_at_ns <= r.ttft_slo_ns]
    assert len(met) / len(result.records) == 0.4


def test_a_refused_connection_is_a_failure_with_a_reason():
    result = run(play(plans(2), target("http://127.0.0.1:9"), settings()))
    assert statuses(result) == [Status.FAILED] * 2
    assert result.client.requests_sent == 2
    sentence = result.total_failure()
    assert sentence is not None
    assert "none of 2 requests succeeded" in sentence
    assert "127.0.0.1:9" in sentence


def test_c25_no_success_at_all_is_said_and_no_success_is_not_needed_twice():
    result, _ = played(lambda _: refused(503), plans(3))
    assert result.total_failure() == "none of 3 requests succeeded; 3 ended rejected: HTTP 503: overloaded"
    result, _ = played(in_turn(refused(503), after(0.0)), plans(2))
    assert result.total_failure() is None


def test_connections_are_reused():
    # One after the other, so that a pause of the machine sends no two at once.
    _, server = played(noop(), plans(20, gap_ms=10), max_in_flight=1)
    assert server.connections < 20


def test_records_come_in_order_of_due_instants():
    result, _ = played(noop(), [plan(2, 30), plan(0, 10), plan(1, 10)])
    assert [record.request_id for record in result.records] == ["r0", "r1", "r2"]


def test_an_empty_schedule_is_an_empty_result():
    result, _ = played(noop(), [])
    assert result.records == ()
    assert result.total_failure() == "no request was due"


@pytest.mark.parametrize("requests", [[plan(0), plan(0)], [plan(0, -1)]])
def test_schedules_that_make_no_sense_are_refused(requests):
    with pytest.raises(ValueError, match="request"):
        run(play(requests, target("http://127.0.0.1:9"), settings()))


def test_a_fault_of_the_client_itself_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    from harness.loadgen import client

    def broken(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(client.Reply, "feed", broken)
    with pytest.raises(ZeroDivisionError):
        played(noop(), plans(1))


def test_the_capacity_fake_serves_at_its_rate():
    result, _ = played(capacity(50), plans(10))
    ends = sorted(record.first_token_at_ns for record in result.records)
    assert all(end >= 20 * MS * (index + 1) for index, end in enumerate(ends))
    assert statuses(result) == [Status.OK] * 10


def test_bodies_reach_the_server_as_planned():
    result, server = run(play_against(noop(), [plan(0, tokens=5, ttft_ms=250)], settings(extra_fields={"seed": 7})))
    body = json.loads(server.seen[0].body)
    assert body == {
        "model": "golden",
        "prompt": [1, 2, 3, 4, 5],
        "max_tokens": 1,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "ttft_slo_s": 0.25,
        "task": "text",
        "seed": 7,
    }
    assert server.seen[0].path == "/v1/completions"
    assert server.seen[0].headers["accept-encoding"] == "identity"
    assert result.records[0].prompt_tokens == 5

"""Reading a token stream from a real socket: the cases reported against peers."""

import json
import time

import pytest

from engine.core.record import RequestRecord, Status
from harness.loadgen import client as client_module
from tests.fakes.golden_script import (
    DONE,
    PING,
    End,
    Script,
    Step,
    after,
    always,
    complete,
    delta,
    error,
    event,
    events,
    in_turn,
    token,
    usage,
)
from tests.loadgen.rig import MS, RUN_S, only_record, plans, played


def ttft_ms(record: RequestRecord) -> float:
    assert record.first_token_at_ns is not None
    return (record.first_token_at_ns - record.due_at_ns) / MS


def test_c01_a_role_chunk_is_not_the_first_token():
    script = events(
        (0.005, delta(role="assistant", content="")),
        (0.010, token("")),
        (0.150, delta(content="x", finish="length")),
        (0.150, usage(3, 1)),
        (0.150, DONE),
    )
    record = only_record(always(script))
    assert record.status is Status.OK
    assert ttft_ms(record) >= 150


def test_c02_a_200_without_a_token_is_a_failure():
    empty = events((0.0, token("", finish="stop")), (0.0, DONE))
    result, _ = played(in_turn(empty, after(0.0)), plans(10))
    assert [record.status for record in result.records].count(Status.OK) == 5
    failed = [record for record in result.records if record.status is Status.FAILED]
    assert len(failed) == 5
    assert all(record.first_token_at_ns is None and "no token" in record.reason for record in failed)


@pytest.mark.parametrize("choices", [(), None])
def test_c03_a_usage_chunk_without_choices_is_read_and_is_no_token(choices):
    record = only_record(always(events((0.0, token(finish="length")), (0.05, usage(11, 1, choices)), (0.05, DONE))))
    assert (record.status, record.server_prompt_tokens, record.output_tokens) == (Status.OK, 11, 1)
    assert not record.output_estimated
    assert record.first_token_at_ns == record.last_token_at_ns


def test_c04_a_trailing_usage_chunk_does_not_move_the_end():
    record = only_record(always(events((0.02, token(finish="length")), (0.4, usage(3, 1)), (0.4, DONE))))
    assert record.status is Status.OK
    assert record.last_token_at_ns == record.first_token_at_ns


def test_c06_five_events_in_one_read():
    record = only_record(lambda seen: complete(seen, 0.01).in_one_send(), max_tokens=5)
    assert (record.status, record.output_tokens, record.tbt_max_ns) == (Status.OK, 5, None)
    uncounted = events(*[(0.01, token()) for _ in range(5)]).in_one_send()
    record = only_record(always(uncounted), max_tokens=5)
    assert (record.status, record.output_tokens) == (Status.OK, 5)


def test_c06_events_split_inside_a_character():
    script = events((0.01, token("漢字😀", finish="length")), (0.01, usage(3, 1)), (0.01, DONE))
    raw = json.dumps(token("漢字😀", finish="length"), ensure_ascii=False).encode()
    script = Script((Step(0.0, event(raw)), *script.steps[1:]))
    record = only_record(always(script.split_every(7, gap_s=0.001)))
    assert (record.status, record.output_tokens) == (Status.OK, 1)


@pytest.mark.parametrize("end", [b"\r\n", b"\r", b"\n"])
def test_c08_line_ends_missing_space_and_comments(end: bytes):
    parts = [PING, event(token(), end=end, space=False), PING, event(token(finish="length"), end=end)]
    record = only_record(always(Script((Step(0.0, b"".join(parts) + event(b"[DONE]", end=end)),))), max_tokens=2)
    assert (record.status, record.output_tokens) == (Status.OK, 2)


def test_c08_bad_json_fails_that_request_and_no_other():
    bad = events((0.0, token()), (0.0, b"data: {oops\n\n"), (0.0, token(finish="length")), (0.0, DONE))
    result, _ = played(in_turn(bad, after(0.0)), plans(4, max_tokens=2))
    assert [record.status for record in result.records].count(Status.FAILED) == 2
    assert all("cannot read" in record.reason for record in result.records if record.status is Status.FAILED)


def test_c09_an_error_object_inside_a_200_stream():
    record = only_record(always(events((0.0, token()), (0.01, error("out of memory")), (0.01, DONE))), max_tokens=2)
    assert (record.status, record.reason) == (Status.FAILED, "out of memory")


def test_c09_after_an_error_object_the_connection_is_closed():
    script = events((0.0, token()), (0.0, error("out of memory")), (2 * RUN_S, token()))
    result, server = played(always(script), plans(1, max_tokens=2), request_timeout_s=2 * RUN_S, drain_s=2 * RUN_S)
    assert result.records[0].reason == "out of memory"
    assert server.seen[0].left_at_ns is not None


def test_after_done_a_server_that_does_not_end_its_reply_is_left():
    script = events((0.0, token(finish="length")), (0.0, usage(3, 1)), (0.0, DONE), end=End.HANG)
    result, server = played(always(script), plans(1))
    assert result.records[0].status is Status.OK
    assert server.seen[0].left_at_ns is not None


@pytest.mark.parametrize("end", [End.KEEP, End.CLOSE, End.CUT, End.RESET])
def test_c10_a_stream_that_closes_early_is_truncated(end: End):
    script = events(*[(0.002 * index, token()) for index in range(10)], (0.05, PING), end=end)
    record = only_record(always(script), max_tokens=64)
    assert record.status is Status.TRUNCATED
    assert "10 of 64" in record.reason
    assert (record.output_tokens, record.output_estimated) == (10, True)


@pytest.mark.parametrize("end", [End.CUT, End.RESET])
def test_c10_a_stream_that_breaks_before_any_token_failed(end: End):
    record = only_record(always(events((0.0, PING), end=end)), max_tokens=64)
    assert record.status is Status.FAILED
    assert record.reason


def test_c11_a_reasoning_token_is_the_first_token():
    script = events(
        (0.03, delta(reasoning_content="hm")),
        (1.5, delta(content="x", finish="length")),
        (1.5, usage(3, 2)),
        (1.5, DONE),
    )
    record = only_record(always(script), max_tokens=2)
    assert record.status is Status.OK
    assert record.tbt_max_ns is not None
    assert record.tbt_max_ns > 150 * MS


def test_c13_usage_is_requested_and_its_absence_flagged():
    result, server = played(always(events((0.0, token(finish="length")), (0.0, DONE))), plans(1))
    assert server.seen[0].json["stream_options"] == {"include_usage": True}
    record = result.records[0]
    assert (record.output_tokens, record.output_estimated, record.server_prompt_tokens) == (1, True, None)


def test_c15_the_stamp_is_taken_before_parsing(monkeypatch: pytest.MonkeyPatch):
    read_at_ns: list[int] = []
    stamped_at_ns: list[int] = []

    class WatchedParser(client_module.SSEParser):
        def feed(self, read: bytes):
            read_at_ns.append(time.monotonic_ns())
            return super().feed(read)

    class WatchedReply(client_module.Reply):
        def feed(self, event, at_ns: int) -> None:
            stamped_at_ns.append(at_ns)
            super().feed(event, at_ns)

    monkeypatch.setattr(client_module, "SSEParser", WatchedParser)
    monkeypatch.setattr(client_module, "Reply", WatchedReply)
    record = only_record(lambda seen: complete(seen).in_one_send())
    assert record.status is Status.OK
    assert len(read_at_ns) == 1
    assert stamped_at_ns
    assert max(stamped_at_ns) <= read_at_ns[0]


def test_an_answer_that_is_not_a_stream_is_a_failure():
    whole = Script((Step(0.0, json.dumps(token(finish="length")).encode()),), content_type="application/json")
    record = only_record(always(whole))
    assert record.status is Status.FAILED
    assert "not a stream" in record.reason


def test_a_redirect_is_not_followed():
    record = only_record(always(Script(status=307, headers={"Location": "/v1/completions"})))
    assert (record.status, record.reason) == (Status.FAILED, "HTTP 307")


def test_the_prompt_length_and_cached_share_are_kept():
    script = events((0.0, token(finish="length")), (0.0, usage(9, 1, cached=8)), (0.0, DONE))
    record = only_record(always(script), tokens=9)
    assert (record.prompt_tokens, record.server_prompt_tokens, record.cached_tokens) == (9, 9, 8)

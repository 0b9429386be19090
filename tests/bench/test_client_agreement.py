"""bench.client_agreement: what it reads of a decision log and of other clients, and what it sends again."""

import io
import json
from pathlib import Path

import pytest

from bench.client_agreement import Round, ServedRequest, read_log, same_again, within
from bench.other_clients import CLIENTS, ClientError, Load, OtherClient, output_of
from engine.core.events import Arrival, Completion, Output
from engine.core.request import Request
from engine.scheduling.decision_log import DecisionLog

MS = 1_000_000
LOAD = Load("http://127.0.0.1:1", "folder", 2.0, 2, 8, 4)


def arrival(name: str, at_ms: int, tokens: int) -> Arrival:
    return Arrival((at_ms + 1) * MS, 0, Request(name, 0, at_ms * MS, tokens, 4))


def done(at_ms: int, *outputs: Output) -> Completion:
    return Completion(at_ms * MS, 0, 0, MS, outputs)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two requests; a chunk of the second ends first, then its prompt, then both have a second token."""
    text = io.StringIO()
    writer = DecisionLog(text, {})
    writer.write(0, [arrival("b", 20, 30)], [])
    writer.write(0, [arrival("a", 10, 8)], [])
    writer.write(0, [done(40, Output("b", None)), done(45, Output("a", 7))], [])
    writer.write(0, [done(60, Output("b", 7))], [])
    writer.write(0, [done(70, Output("a", 8, "length"), Output("b", 8))], [])
    path = tmp_path / "log"
    path.write_text(text.getvalue() + '{"now_ns": 5, "even')
    return path


def test_a_log_gives_arrivals_in_order_and_first_tokens(log: Path) -> None:
    served = read_log(log)
    assert served == [ServedRequest(10 * MS, 8, 4, 45 * MS), ServedRequest(20 * MS, 30, 4, 60 * MS)]
    assert [each.ttft_ms for each in served] == [35, 40]
    assert within(served, (11 * MS, 20 * MS)) == served[1:]


def test_the_same_is_sent_again_at_the_same_gaps(log: Path) -> None:
    plans = same_again(read_log(log), 64, "x")
    assert [(plan.due_ns, len(plan.token_ids), plan.max_tokens) for plan in plans] == [(0, 8, 4), (10 * MS, 30, 4)]
    assert plans[0].slo.ttft_ns is None


def test_a_row_has_the_medians_of_both_and_of_the_server(log: Path) -> None:
    served = [*read_log(log), ServedRequest(100 * MS, 8, 4, 130 * MS), ServedRequest(110 * MS, 30, 4, 150 * MS)]
    one = Round("c", "1", LOAD, [0.0, 50.0], [31.0, 41.0], (10 * MS, 50 * MS), (90 * MS, 200 * MS))
    row = one.row(served)
    assert (row["their_p50_ms"], row["our_p50_ms"], row["difference_ms"]) == (25, 36, -11)
    assert (row["server_p50_of_theirs_ms"], row["server_p50_of_ours_ms"], row["prompt_tokens_mean"]) == (37.5, 35, 19)
    with pytest.raises(ValueError, match="the server counts 2 of its requests and 1 of ours"):
        one.row(served[:-1])


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_is_told_what_to_send_and_its_ttfts_are_read(client: OtherClient, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    words = client.words(LOAD, result)
    assert {"folder", "2.0", "2", "8", "4"} <= set(words)
    assert any("http://127.0.0.1:1" in word for word in words)
    result.write_text(json.dumps({"ttfts": [0.5, 0.25]}))
    assert client.ttfts_s("[0.5, 0.25]", result) == [0.5, 0.25]


def test_a_client_that_ends_badly_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="ended with code 3: broken"):
        output_of(["sh", "-c", "echo broken; exit 3"], tmp_path)

"""The parser gives the same events however the bytes are cut."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.loadgen.sse import SSEEvent, SSEParser

STREAM = (
    '\ufeff: ping\r\n\r\ndata: {"a": "é漢😀"}\n\ndata:no space\r\rdata: two\r\ndata: lines\r\n\r\n'
    "event: error\ndata: x\n\nid: 7\nretry: 10\nunknown: y\n\ndata\n\ndata:  kept space\n\ndata: [DONE]\n\n"
).encode()
EVENTS = [
    SSEEvent('{"a": "é漢😀"}'.encode()),
    SSEEvent(b"no space"),
    SSEEvent(b"two\nlines"),
    SSEEvent(b"x", "error"),
    SSEEvent(b""),
    SSEEvent(b" kept space"),
    SSEEvent(b"[DONE]"),
]


def parse(*reads: bytes) -> list[SSEEvent]:
    parser = SSEParser()
    return [event for read in reads for event in parser.feed(read)] + parser.close()


def test_whole_stream_in_one_read():
    assert parse(STREAM) == EVENTS


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_every_single_cut(cut: int):
    assert parse(STREAM[:cut], STREAM[cut:]) == EVENTS


def test_every_pair_of_cuts():
    for first in range(len(STREAM) + 1):
        for second in range(first, len(STREAM) + 1):
            assert parse(STREAM[:first], STREAM[first:second], STREAM[second:]) == EVENTS


def test_byte_by_byte():
    assert parse(*(bytes([byte]) for byte in STREAM)) == EVENTS


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_is_given_by_the_read_that_ends_it(end: bytes):
    parser = SSEParser()
    assert parser.feed(b"data: a" + end) == []
    assert parser.feed(end) == [SSEEvent(b"a")]


def test_a_stream_without_its_last_empty_line_keeps_its_last_event():
    assert parse(b"data: a\n\ndata: [DONE]") == [SSEEvent(b"a"), SSEEvent(b"[DONE]")]


LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
TEXTS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=12).map(str.encode)


@settings(max_examples=150)
@given(st.lists(st.tuples(TEXTS, st.booleans(), st.booleans(), LINE_ENDS), max_size=6), st.data())
def test_random_streams_in_random_pieces(written, data):
    stream, expected = b"", []
    for text, space, comment, end in written:
        # Without the optional space a leading space of the text would be taken for it.
        space = space or text.startswith(b" ")
        stream += (b": note" + end if comment else b"") + b"data:" + (b" " if space else b"") + text + end + end
        expected.append(SSEEvent(text))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    assert parse(*(stream[a:b] for a, b in itertools.pairwise(edges))) == expected

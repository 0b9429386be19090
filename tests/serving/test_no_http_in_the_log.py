"""Bytes that are no HTTP leave one line in the server's log; a fault of the server keeps its traceback."""

import io
import logging

import pytest
from aiohttp.http_exceptions import BadHttpMessage

from engine.serving.http_process import without_traceback_of_what_is_no_http


@pytest.fixture
def log() -> tuple[logging.Logger, io.StringIO]:
    logger, written = logging.Logger("aiohttp.server"), io.StringIO()
    logger.addHandler(logging.StreamHandler(written))
    logger.addFilter(without_traceback_of_what_is_no_http)
    return logger, written


@pytest.mark.parametrize(
    ("error", "lines", "words"),
    [
        (BadHttpMessage("Invalid method:\n\n  b'\\xff'"), 1, "from 10.0.0.1: no HTTP (status 400)"),
        (ZeroDivisionError("ours"), 5, "ZeroDivisionError: ours"),
    ],
)
def test_whose_fault_it_is_decides_what_is_written(
    log: tuple[logging.Logger, io.StringIO], error: Exception, lines: int, words: str
) -> None:
    logger, written = log
    try:
        raise error
    except type(error) as caught:
        logger.error("Error handling request from %s", "10.0.0.1", exc_info=caught)
    text = written.getvalue()
    assert words in text
    assert len(text.splitlines()) == lines

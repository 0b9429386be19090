"""C22: the soft limit is raised, or the run refused with the number needed."""

import errno
import os
import resource
import socket

import pytest

from harness.loadgen import open_files
from harness.loadgen.errors import OpenFilesLimitError
from harness.loadgen.player import play
from harness.measurement.verdict import Verdict, judge
from tests.loadgen.rig import plans, run, settings, target


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """A pretended limit of 1024 soft, 4096 hard, with 20 files open."""
    state = {"now": (1024, 4096)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: state["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: state.update(now=wanted))
    monkeypatch.setattr(open_files, "open_now", lambda: 20)
    return state


def test_c22_enough_is_left_alone(limits):
    assert open_files.ensure_open_files(900) == 1024
    assert limits["now"] == (1024, 4096)


def test_c22_the_soft_limit_is_raised_to_what_is_needed(limits):
    assert open_files.ensure_open_files(3000) == 3084
    assert limits["now"] == (3084, 4096)


def test_c22_a_run_beyond_the_hard_limit_is_refused_with_the_number_needed(limits):
    with pytest.raises(OpenFilesLimitError, match=r"10000 connections .* limit of 10084, but the hard limit is 4096"):
        open_files.ensure_open_files(10_000)


def test_c22_the_refusal_comes_before_anything_is_sent(limits):
    with pytest.raises(OpenFilesLimitError):
        run(play(plans(5000), target("http://127.0.0.1:9"), settings()))


def test_c22_requests_that_cannot_overlap_need_no_more_files(limits):
    with pytest.raises(OpenFilesLimitError):
        run(play(plans(5000, gap_ms=1), target("http://127.0.0.1:9"), settings(request_timeout_s=5)))
    requests = plans(5000, gap_ms=1)
    from harness.loadgen.player import _connections

    assert _connections(requests, settings(request_timeout_s=0.01)) == 11
    assert _connections(requests, settings(max_in_flight=3)) == 3


def test_files_open_now_are_counted():
    assert open_files.open_now() > 0


def test_c22_sends_without_an_open_file_are_counted(monkeypatch):
    """Another part of the process took the files meanwhile: the run says so, and the verdict calls it the client's."""

    def no_file_left(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def played():
        monkeypatch.setattr(socket, "socket", no_file_left)  # the loop has its own sockets already
        try:
            return await play(plans(3), target("http://127.0.0.1:9"), settings())
        finally:
            monkeypatch.undo()

    result = run(played())
    assert result.client.open_files_failures == 3
    assert all("Too many open files" in record.reason for record in result.records)
    open_files_check = next(c for c in judge(result.records, result.client).checks if c.name == "open_files")
    assert (open_files_check.passed, open_files_check.verdict) == (False, Verdict.CLIENT_BOUND)

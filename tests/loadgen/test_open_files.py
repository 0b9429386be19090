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


def test_c22_the_refusal_names_the_setting_and_the_value_that_fits(limits):
    """4096 - 84 = 4012 connections: at 1000 requests a second four seconds' worth, the ends included."""
    with pytest.raises(
        OpenFilesLimitError, match=r"=60; set load\.request_timeout_s to 4 or less, send at a lower rate"
    ):
        run(play(plans(5000, gap_ms=1), target("http://127.0.0.1:9"), settings()))
    with pytest.raises(OpenFilesLimitError, match=r"=60; send at a lower rate, or raise the limit"):
        run(play(plans(5000), target("http://127.0.0.1:9"), settings()))


def test_c22_local_ports_run_out_before_files_do(limits, monkeypatch, tmp_path):
    limits["now"] = (100_000, 100_000)
    monkeypatch.setattr(open_files, "PORT_RANGE", tmp_path / "range")
    assert open_files.local_ports() == 65_535
    (tmp_path / "range").write_text("32768\t60999\n")
    assert open_files.ensure_open_files(28_232) == 100_000
    with pytest.raises(OpenFilesLimitError, match="28233 connections at once and this machine has 28232 local ports"):
        open_files.ensure_open_files(28_233)


def test_c22_requests_that_cannot_overlap_need_no_more_files(limits):
    with pytest.raises(OpenFilesLimitError):
        run(play(plans(5000, gap_ms=1), target("http://127.0.0.1:9"), settings(request_timeout_s=5)))
    requests = plans(5000, gap_ms=1)
    from harness.loadgen.player import _connections

    assert _connections(requests, settings(request_timeout_s=0.01)) == 11
    assert _connections(requests, settings(max_in_flight=3)) == 3


def test_files_open_now_are_counted():
    assert open_files.open_now() > 0


@pytest.mark.parametrize("lacking", [errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL])
def test_c22_sends_without_an_open_file_or_port_are_counted(monkeypatch, lacking):
    """Another part of the process took the files meanwhile: the run says so, and the verdict calls it the client's."""

    def no_file_left(*_, **__):
        raise OSError(lacking, os.strerror(lacking))

    async def played():
        monkeypatch.setattr(socket, "socket", no_file_left)  # the loop has its own sockets already
        try:
            return await play(plans(3), target("http://127.0.0.1:9"), settings())
        finally:
            monkeypatch.undo()

    result = run(played())
    assert result.client.open_files_failures == 3
    assert all(os.strerror(lacking) in record.reason for record in result.records)
    open_files_check = next(c for c in judge(result.records, result.client).checks if c.name == "open_files")
    assert (open_files_check.passed, open_files_check.verdict) == (False, Verdict.CLIENT_BOUND)

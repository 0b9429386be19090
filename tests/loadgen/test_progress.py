"""Progress is plain lines without a terminal, and nothing when switched off."""

import asyncio
import io
import sys

import pytest

from harness.loadgen import player
from harness.loadgen.progress import NoProgress, PlainProgress, RichProgress, Standing, open_progress
from harness.loadgen.settings import ShowProgress
from tests.fakes.golden_script import once
from tests.fakes.golden_server import GoldenServer
from tests.loadgen.rig import plans, run, settings, target


def test_a_standing_in_words():
    assert Standing(10, 4, 3, 12.4).line() == "sent 4/10, ended 3, 12 s of the schedule left"
    assert Standing(10, 10, 3, -1.0).line() == "sent 10/10, ended 3, draining"


def test_plain_lines_are_spaced_and_the_last_is_always_there():
    out = io.StringIO()
    lines = PlainProgress(out, every_s=1000)
    for sent in range(5):
        lines.show(Standing(5, sent, 0, 1.0))
    assert out.getvalue() == ""
    lines.close()
    assert out.getvalue() == "sent 4/5, ended 0, 1 s of the schedule left\n"


def test_choices(monkeypatch: pytest.MonkeyPatch):
    assert isinstance(open_progress(ShowProgress.OFF), NoProgress)
    assert isinstance(open_progress(ShowProgress.PLAIN), PlainProgress)
    assert isinstance(open_progress(ShowProgress.AUTO), PlainProgress)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = open_progress(ShowProgress.AUTO)
    assert isinstance(bar, RichProgress)
    bar.show(Standing(5, 2, 1, 1.0))
    bar.close()


def test_without_rich_a_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(open_progress(ShowProgress.AUTO), PlainProgress)


def test_a_run_shows_where_it_stands(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(player, "PROGRESS_PERIOD_S", 0.02)
    seen: list[Standing] = []
    shown = asyncio.Event()

    class Kept(NoProgress):
        def show(self, standing: Standing) -> None:
            seen.append(standing)
            if len(seen) > 3:
                shown.set()

    async def watched() -> None:
        async with GoldenServer(once(shown)) as server:
            await player.play(plans(5, gap_ms=60), target(server.base_url), settings(), progress=Kept())

    run(watched())
    assert len(seen) > 3
    assert [one.sent for one in seen] == sorted(one.sent for one in seen)
    assert (seen[-1].due, seen[-1].sent, seen[-1].ended) == (5, 5, 5)

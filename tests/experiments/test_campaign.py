"""What surrounds a measurement: skipping, failing, redoing, interrupting, locks. `measure` is replaced."""

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.core.command_line import INTERRUPTED_STATUS
from harness.experiments import campaign as campaign_module
from harness.experiments.campaign import Campaign, point_folder
from harness.experiments.locks import HeldElsewhereError, exclusive, machine_to_oneself
from harness.experiments.measure import Measured
from harness.experiments.output import OutputSettings
from harness.experiments.point_origin import describe
from harness.experiments.prepare import Prepared
from harness.experiments.servers import ServerFailedError, ServerPool
from harness.experiments.write_tables import write_tables
from harness.measurement.store import PROVENANCE, RECORDS, SETTINGS, PointState, point_state, read_point, write_point
from harness.measurement.table_file import read_table
from tests.experiments.points import measured, prepared, profile_text

Fake = Callable[..., Awaitable[Measured]]


@pytest.fixture(name="points")
def _points(tmp_path: Path) -> list[Prepared]:
    profile = tmp_path / "profile.json"
    profile.write_text(profile_text())
    return prepared(str(profile), axes=[{"load.rate_scale": rate} for rate in (1, 2, 3)])


class Runs:
    """A stand-in for `measure` that fails where told, and remembers."""

    def __init__(
        self, failing: dict[float, Exception] | None = None, meanwhile: Callable[[], None] | None = None
    ) -> None:
        self.rates: list[float] = []
        self._failing = failing or {}
        self._meanwhile = meanwhile or (lambda: None)

    async def __call__(self, ready: Prepared, folder: Path, pool: Any, interrupt: Any) -> Measured:
        rate = ready.settings.load.rate_scale
        self.rates.append(rate)
        self._meanwhile()
        if rate in self._failing:
            raise self._failing[rate]
        point = measured(ready, met=3, missed=1, interrupted=interrupt.stop_sending.is_set())
        write_point(folder, point)
        return Measured(point, None)


def run(monkeypatch: pytest.MonkeyPatch, results: Path, points: list[Prepared], runs: Runs, **output: bool) -> Campaign:
    monkeypatch.setattr(campaign_module, "measure", runs)
    campaign = Campaign(OutputSettings(results=str(results), share_machine=True, **output))

    async def whole() -> None:
        with campaign.serving(points[0]):
            await campaign.run(points)

    asyncio.run(whole())
    return campaign


def test_finished_points_are_skipped_on_a_rerun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    first, second = Runs(), Runs()
    assert run(monkeypatch, tmp_path, points, first).status == 0
    assert run(monkeypatch, tmp_path, points, second).status == 0
    assert (first.rates, second.rates) == ([1, 2, 3], [])


def test_redo_measures_again_and_leaves_one_point(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    run(monkeypatch, tmp_path, points, Runs())
    again = Runs()
    run(monkeypatch, tmp_path, points, again, redo=True)
    assert again.rates == [1, 2, 3]
    assert sorted(p.name for p in (tmp_path / "raw" / "smoke").iterdir()) == sorted(p.point for p in points)


def test_a_redo_that_fails_keeps_the_old_point(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    run(monkeypatch, tmp_path, points, Runs())
    run(monkeypatch, tmp_path, points, Runs({2.0: ServerFailedError("gone")}), redo=True)
    assert point_state(point_folder(tmp_path, "smoke", points[1].point)) is PointState.FINISHED


def test_c53_a_failing_point_is_told_at_once_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs({2.0: ServerFailedError("the server exited with code 1")})
    assert run(monkeypatch, tmp_path, points, runs).status == 1
    assert runs.rates == [1, 2, 3]
    told = capsys.readouterr().err.splitlines()
    failed = next(i for i, line in enumerate(told) if "FAILED: the server exited with code 1" in line)
    assert any(points[2].point in line for line in told[failed + 1 :])
    assert point_state(point_folder(tmp_path, "smoke", points[1].point)) is PointState.ABSENT


def test_c53_a_fault_of_the_program_costs_one_point_and_shows_its_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs({1.0: KeyError("a bug")})
    assert run(monkeypatch, tmp_path, points, runs).status == 1
    assert runs.rates == [1, 2, 3]
    assert "Traceback" in capsys.readouterr().err


def test_c53_fail_fast_stops_after_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    runs = Runs({1.0: ServerFailedError("no")})
    assert run(monkeypatch, tmp_path, points, runs, fail_fast=True).status == 1
    assert runs.rates == [1]


def test_c55_an_interrupt_ends_the_campaign_and_its_point_is_redone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    monkeypatch.setattr(campaign_module, "tell", lambda _: None)
    campaign_holder: list[Campaign] = []
    made = Campaign.__init__

    def remember(self: Campaign, output: OutputSettings) -> None:
        made(self, output)
        campaign_holder.append(self)

    monkeypatch.setattr(Campaign, "__init__", remember)
    runs = Runs(meanwhile=lambda: campaign_holder[0]._press())
    assert run(monkeypatch, tmp_path, points, runs).status == 130
    assert runs.rates == [1]
    assert point_state(point_folder(tmp_path, "smoke", points[0].point)) is PointState.INTERRUPTED
    monkeypatch.setattr(Campaign, "__init__", made)
    again = Runs()
    assert run(monkeypatch, tmp_path, points, again).status == 0
    assert again.rates == [1, 2, 3]


def test_c56_a_truncated_point_is_redone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    run(monkeypatch, tmp_path, points, Runs())
    records = point_folder(tmp_path, "smoke", points[1].point) / RECORDS
    records.write_bytes(records.read_bytes()[:-5])
    again = Runs()
    run(monkeypatch, tmp_path, points, again)
    assert again.rates == [2]


def test_c56_a_point_whose_server_died_is_redone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    run(monkeypatch, tmp_path, points[:2], Runs())
    folder = point_folder(tmp_path, "smoke", points[0].point)
    shutil.rmtree(folder)
    write_point(folder, replace(measured(points[0], met=3, missed=1), server_alive=False))
    again = Runs()
    assert run(monkeypatch, tmp_path, points[:2], again).status == 0
    assert again.rates == [1]
    assert read_point(folder).server_alive


@pytest.mark.parametrize("killed", [False, True])
def test_c52_a_point_another_run_is_at_is_waited_for_at_the_end_and_measured_if_it_never_came(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    points: list[Prepared],
    capsys: pytest.CaptureFixture[str],
    killed: bool,
) -> None:
    folder = point_folder(tmp_path, "smoke", points[0].point)
    with contextlib.ExitStack() as other:
        other.enter_context(exclusive(folder.with_name(f".{folder.name}.lock")))

        def meanwhile() -> None:
            if runs.rates[-1] == 3:
                if not killed:
                    write_point(folder, measured(points[0], met=3, missed=1))
                other.close()

        runs = Runs(meanwhile=meanwhile)
        assert run(monkeypatch, tmp_path, points, runs).status == 0
    assert runs.rates == ([2, 3, 1] if killed else [2, 3])
    assert point_state(folder) is PointState.FINISHED
    err = capsys.readouterr().err
    assert "it is being measured by another run, and is looked for at the end" in err
    assert ("finished by another run meanwhile" in err) is not killed


def test_an_interrupt_ends_the_wait_for_another_runs_point(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    folder = point_folder(tmp_path, "smoke", points[0].point)
    runs = Runs(meanwhile=lambda: os.kill(os.getpid(), signal.SIGINT))
    with exclusive(folder.with_name(f".{folder.name}.lock")):
        assert run(monkeypatch, tmp_path, points[:2], runs).status == INTERRUPTED_STATUS
    assert runs.rates == [2]


def test_a_disk_that_fills_up_costs_no_further_measurement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared], capsys: pytest.CaptureFixture[str]
) -> None:
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    runs = Runs(meanwhile=lambda: monkeypatch.setattr(campaign_module, "require_room", full))
    assert run(monkeypatch, tmp_path, points, runs).status == 1
    assert runs.rates == [1]
    err = capsys.readouterr().err
    assert err.count("FAILED: No space left on device: ") == 2
    assert "once that is mended, the same command goes on from here" in err
    assert run(monkeypatch, tmp_path, points, Runs()).status == 1  # still full
    monkeypatch.undo()
    again = Runs()
    assert run(monkeypatch, tmp_path, points, again).status == 0
    assert again.rates == [2, 3]


def test_a_lock_is_held_by_one_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with exclusive(path), pytest.raises(HeldElsewhereError), exclusive(path):
        pass
    assert not path.exists()
    with exclusive(path):
        pass


def test_tables_are_rewritten_from_the_raw_points(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    run(monkeypatch, tmp_path, points, Runs())
    told: list[str] = []
    paths = write_tables(tmp_path, "smoke", None, told.append)
    assert [path.name for path in paths] == ["smoke.csv", "smoke_fairness.csv", "smoke_max_goodput.csv"]
    rows = read_table(paths[0])
    assert [(row["rate_scale"], row["attainment"], row["system"]) for row in rows] == [
        (rate, "0.75", "flowprefill") for rate in ("1", "2", "3")
    ]
    first = [path.read_bytes() for path in paths]
    damaged = point_folder(tmp_path, "smoke", points[0].point) / RECORDS
    damaged.write_bytes(b"")
    write_tables(tmp_path, "smoke", None, told.append)
    assert len(read_table(paths[0])) == 2
    assert any("is damaged" in line for line in told)
    run(monkeypatch, tmp_path, points, Runs())
    assert [p.read_bytes() for p in write_tables(tmp_path, "smoke", None, told.append)] == first


def test_a_measurement_waits_for_the_machine_unless_it_may_share_it(tmp_path: Path) -> None:
    path, told, done = tmp_path / "machine.lock", list[str](), threading.Event()

    def other() -> None:
        with machine_to_oneself(told.append, path=path):
            done.set()

    waiting = threading.Thread(target=other, daemon=True)
    with machine_to_oneself(told.append, path=path):
        with machine_to_oneself(told.append, share=True, path=path):
            pass
        waiting.start()
        assert not done.wait(0.2)
    waiting.join(120)
    assert done.is_set()
    assert told == ["waiting for another run's point on this machine to end"]


def test_a_point_whose_classes_share_a_column_is_left_out_of_the_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    twins = measured(points[0], met=2)
    first, second = twins.records
    write_point(
        point_folder(tmp_path, "smoke", points[0].point),
        replace(twins, records=(first, replace(second, task="TEXT"))),
    )
    told: list[str] = []
    assert write_tables(tmp_path, "smoke", None, told.append) == []
    assert f"left out of the table: {points[0].point}: class" in told[0]


def test_show_takes_a_damaged_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]) -> None:
    run(monkeypatch, tmp_path, points[:1], Runs())
    folder = point_folder(tmp_path, "smoke", points[0].point)
    (folder / PROVENANCE).write_text("[1]")
    (folder / SETTINGS).write_text("{")
    assert f"{points[0].point} (damaged)" in describe(folder, tmp_path)


def test_an_interrupt_while_the_server_starts_ends_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    ended: list[bool] = []

    async def never(self: object, point: object, profile: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    monkeypatch.setattr(ServerPool, "get", never)
    campaign = run(monkeypatch, tmp_path, points, campaign_module.measure)  # type: ignore[arg-type]
    assert ended == [True]
    assert campaign.status == 130
    assert point_state(point_folder(tmp_path, "smoke", points[0].point)) is PointState.ABSENT


def waits_for_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared], then: Callable[[Runs, int], None]
) -> tuple[Campaign, Runs]:
    """A campaign while another has the machine. then: called on the event loop, with the other's lock file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runs = Runs()
    monkeypatch.setattr(campaign_module, "measure", runs)
    campaign = Campaign(OutputSettings(results=str(tmp_path)))

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        other = os.open(tmp_path / f"flowprefill-measuring-{os.getuid()}.lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(other, fcntl.LOCK_EX)
        monkeypatch.setattr(
            campaign_module, "tell", lambda text: "waiting" in text and loop.call_soon(then, runs, other)
        )
        with campaign.serving(points[0]):
            await campaign.run(points[:2])

    asyncio.run(whole())
    return campaign, runs


def test_the_event_loop_goes_on_while_a_campaign_waits_for_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    before: list[list[float]] = []

    def let_go(runs: Runs, other: int) -> None:
        before.append(list(runs.rates))
        os.close(other)

    campaign, runs = waits_for_the_machine(monkeypatch, tmp_path, points, let_go)
    assert before == [[]]
    assert (campaign.status, runs.rates) == (0, [1, 2])


def test_an_interrupt_ends_the_wait_for_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: list[Prepared]
) -> None:
    campaign, runs = waits_for_the_machine(
        monkeypatch, tmp_path, points, lambda *_: os.kill(os.getpid(), signal.SIGINT)
    )
    assert (campaign.status, runs.rates) == (130, [])


def test_an_interrupt_ends_the_wait_of_a_study(tmp_path: Path) -> None:
    told = lambda _: threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()  # noqa: E731
    with (
        machine_to_oneself(lambda _: None, path=tmp_path / "lock"),
        pytest.raises(KeyboardInterrupt),
        machine_to_oneself(told, path=tmp_path / "lock"),
    ):
        raise AssertionError("another has the lock")

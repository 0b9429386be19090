"""A server that runs already (`system=external`), played by the scripted fake: searches, refusals, Ctrl-C."""

import asyncio
import csv
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.end_to_end.command import TINY, start
from tests.fakes.golden_script import MODEL, Respond, Script, Seen, after, capacity, complete, in_turn, never, refused
from tests.fakes.golden_server import GoldenServer

WAIT_S = 300.0
PATIENT = "tests.end_to_end.patient_run"


def arguments(server: GoldenServer, *more: str) -> tuple[str, ...]:
    return (
        *TINY, "system=external", f"system.base_url={server.base_url}", f"system.served_model={MODEL}",
        "experiment=smoke", "workload.window_s=4", "load.rate_scale=2", *more,
    )  # fmt: skip


def search_of(server: GoldenServer, trace: Path, ttft_s: float, *more: str) -> tuple[str, ...]:
    return (
        *TINY, "system=external", f"system.base_url={server.base_url}", f"system.served_model={MODEL}",
        "experiment=max_goodput", "workload=csv", f"workload.path={trace}", "workload.columns.class=null",
        "workload.arrivals=recorded", "workload.window_s=null", "slo=uniform", f"slo.uniform.ttft_s={ttft_s}",
        "search.tries=4", "search.budget=30", *more,
    )  # fmt: skip


def said_last(err: str) -> list[str]:
    return [line for line in err.splitlines() if "max goodput" in line]


def listed(table: Path, *columns: str) -> list[tuple[str, ...]]:
    with table.open(newline="") as file:
        return [tuple(row[name] for name in columns) for row in csv.DictReader(file)]


async def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, err = await asyncio.to_thread(process.communicate, timeout=WAIT_S)
    return process.returncode, err


def read_until(process: "subprocess.Popen[str]", words: str) -> str:
    """What it tells up to the line with these words, or to its end."""
    assert process.stderr is not None
    told = ""
    while words not in told and (line := process.stderr.readline()):
        told += line
    return told


def played(respond: Respond, cwd: Path, *more: str) -> tuple[int, str, list[dict[str, str]]]:
    async def whole() -> tuple[int, str]:
        async with GoldenServer(respond) as server:
            return await ended(start(cwd, *arguments(server, *more)))

    status, err = asyncio.run(whole())
    table = cwd / "results" / "tables" / "smoke.csv"
    with table.open(newline="") if table.exists() else open("/dev/null", newline="") as file:  # noqa: PTH123
        return status, err, list(csv.DictReader(file))


def test_an_external_server_is_measured_without_a_profile(tmp_path: Path) -> None:
    status, err, rows = played(after(0.01), tmp_path, "slo=uniform", "slo.uniform.ttft_s=60")
    assert status == 0, err
    assert [(row["system"], row["backend"], row["attainment"]) for row in rows] == [("external", "server", "1")]
    assert (rows[0]["slo_speed_factor"], rows[0]["device"], rows[0]["blocking_n"]) == ("1", "unknown", "")
    assert not (tmp_path / "outputs" / "profiles").exists()


def test_a_name_it_does_not_serve_ends_with_a_sentence_and_2(tmp_path: Path) -> None:
    status, err, rows = played(after(0.0), tmp_path, "system.served_model=mine")
    assert (status, rows) == (2, []), err
    assert f"serves model {MODEL!r}; asked for 'mine'" in err.splitlines()[-1]


def test_a_server_that_goes_during_a_search_is_no_mistake(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{i},320,1\n" for i in range(4)))
    probes = 0

    def gone(seen: Seen) -> Script:
        nonlocal probes
        probes += seen.headers["x-request-id"] == "readiness"
        return after(0.0)(seen) if probes < 2 else refused(500)

    async def whole() -> tuple[int, str]:
        async with GoldenServer(gone) as server:
            return await ended(start(tmp_path, *search_of(server, trace, 60, "search.start=4"), module=PATIENT))

    status, err = asyncio.run(whole())
    assert status == 1, err
    assert "FAILED: it answered before: " in err


def test_c25_a_server_that_fails_every_request_is_a_clear_failure(tmp_path: Path) -> None:
    # The first answer, to the readiness probe, is a token; all the others are errors.
    answers = iter([after(0.001)])
    status, err, rows = played(lambda seen: next(answers, lambda _: refused(500))(seen), tmp_path)
    assert status == 1
    assert "FAILED: none of" in err
    assert [row["verdict"] for row in rows] == ["SERVER-FAILED"]


@pytest.mark.slow
def test_a_search_brackets_the_capacity_of_a_live_server(tmp_path: Path) -> None:
    """One request at a time, 0.4 s each: above 2.5 requests/s the queue grows, and the last of 12 waits longest.

    The n-th from 0 on ends 0.4 s + n x (0.4 s - gap) after it was due: at 2.828 requests/s the last one after 0.91 s,
    half a second within an SLO of 1.4 s, which at 3.363 the last two cannot meet (the last but one ends after 1.427 s).
    """
    trace = tmp_path / "trace.csv"
    # Gaps of 1 s at rate_scale 1, so that rate_scale is the rate.
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{i},320,1\n" for i in range(12)))

    async def whole() -> tuple[int, str]:
        async with GoldenServer(capacity(2.5)) as server:
            asked = search_of(server, trace, 1.4, "search.start=2", "search.tolerance=0.3")
            return await ended(start(tmp_path, *asked, module=PATIENT))

    status, err = asyncio.run(whole())
    assert status == 0, err
    with (tmp_path / "results" / "tables" / "max_goodput.csv").open(newline="") as file:
        attained = {float(row["rate_scale"]): float(row["attainment"]) for row in csv.DictReader(file)}
    # Doubled, then geometric means, kept to four digits.
    assert {rate: share >= 0.9 for rate, share in attained.items()} == {2: True, 4: False, 2.828: True, 3.363: False}
    assert "max goodput of External server, seed 0 is rate_scale" in err


IN_TIME_S, LATE_S = 2.0, 3.0


class ByRate:
    """Runs of 12 requests, of which the first is answered well; the rate is that of the point at work.

    At 8/s, and in the first run at 2/s, replies have a token too many: in time, yet the run says nothing of the server
    (SERVER-FAILED). From 5/s on the others are late.
    """

    def __init__(self, points: Path) -> None:
        self.measured = 0
        self._points = points

    def __call__(self, seen: Seen) -> Script:
        if seen.headers["x-request-id"] == "readiness":
            return complete(seen)
        number, self.measured = self.measured % 12, self.measured + 1
        if number == 0:
            return complete(seen)
        (lock,) = self._points.glob(".external_server-r*.lock")
        rate = float(lock.name.split("-")[1].removeprefix("r"))
        if rate == 8 or self.measured <= 12:
            return complete(seen, tokens=3)
        return complete(seen, first_s=LATE_S if rate > 5 else 0.0)


@pytest.mark.slow
def test_points_that_are_not_valid_neither_steer_nor_end_a_search(tmp_path: Path) -> None:
    """Believed, the runs at 8/s, the highest rate allowed, would end the search: all are in time."""
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{i},320,2\n" for i in range(12)))
    server_of = ByRate(tmp_path / "results" / "raw" / "max_goodput")

    async def twice() -> list[tuple[int, str]]:
        async with GoldenServer(server_of) as server:
            more = ("search.start=2", "search.high=8", "search.tolerance=0.5")
            asked = search_of(server, trace, IN_TIME_S, *more)
            return [await ended(start(tmp_path, *asked, module=PATIENT)) for _ in range(2)]

    (status, err), again = asyncio.run(twice())
    assert status == 0, err
    tables = tmp_path / "results" / "tables"
    assert listed(tables / "max_goodput.csv", "rate_scale", "verdict", "attainment") == [
        ("2", "VALID", "1"), ("4", "VALID", "1"), ("5.657", "VALID", "0.0833333333"), ("8", "SERVER-FAILED", "1"),
    ]  # fmt: skip
    not_valid = listed(tables / "max_goodput_not_valid.csv", "rate_scale", "try", "verdict", "verdict_reason")
    assert not_valid == [
        ("2", "1", "SERVER-FAILED", "output_lengths"),
        *(("8", number, "SERVER-FAILED", "output_lengths") for number in ("1", "2", "3", "")),
    ]
    # Between 4, where all are met, and 5.657, where one in twelve is: 0.1 / (11 / 12) of the way.
    ((found, bound, points, left_out),) = listed(
        tables / "max_goodput_max_goodput.csv",
        "max_goodput_rate_scale",
        "max_goodput_bound",
        "points",
        "points_left_out",
    )
    assert (float(found), bound, points, left_out) == (pytest.approx(4.18076, rel=1e-5), "", "3", "1")
    assert f"{len(not_valid) + 3} measurements at 4 rates, {len(not_valid)} of them not VALID" in err

    # The same command again measures nothing and says the same.
    assert (again[0], server_of.measured) == (0, 12 * (len(not_valid) + 3)), again
    assert said_last(again[1]) == said_last(err)


def test_c28_half_refused_is_at_most_half_attained(tmp_path: Path) -> None:
    status, err, rows = played(in_turn(after(0.001), lambda _: refused(503)), tmp_path)
    assert status == 0, err
    assert float(rows[0]["attainment"]) <= 0.55
    refusals = int(rows[0]["requests_rejected"])
    assert refusals > 0
    assert f"({refusals} not served, all of them rejected: HTTP 503: overloaded)" in err


@pytest.mark.parametrize("presses", [1, 2])
def test_c55_ctrl_c_keeps_an_interrupted_point_and_the_second_stops_hard(tmp_path: Path, presses: int) -> None:
    async def whole() -> tuple[int, str]:
        answers = iter([after(0.001)])
        # After the probe: with one press replies come after a while, with two they never do.
        later = after(0.5) if presses == 1 else (lambda _: never())
        async with GoldenServer(lambda seen: next(answers, later)(seen)) as server:
            # Far slower than the test waits: the schedule lasts many minutes.
            process = start(tmp_path, *arguments(server, "load.rate_scale=0.001", "load.seed=0,1", "-m"))
            deadline = time.monotonic() + WAIT_S
            while len(server.seen) < 2 and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
            process.send_signal(signal.SIGINT)
            said = await asyncio.to_thread(read_until, process, "stopping: nothing more is sent")
            if presses == 2:
                process.send_signal(signal.SIGINT)
            status, rest = await ended(process)
            return status, said + rest

    status, err = asyncio.run(whole())
    assert status == 130, err
    assert "stopping: nothing more is sent" in err
    folders = [path for path in (tmp_path / "results" / "raw" / "smoke").iterdir() if path.is_dir()]
    assert len(folders) == 1, "the second job of the sweep must not begin"
    assert '"interrupted": true' in (folders[0] / "client_report.json").read_text()
    assert not (tmp_path / "results" / "tables").exists()

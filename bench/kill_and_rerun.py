"""python -m bench.kill_and_rerun: kill -9 at random moments; after a rerun everything is as if nothing had happened.

Simulated: a sweep, or one of its workers, is killed; after a rerun the tables have the bytes of an undisturbed run.
Measured, on the smallest model: the client or its server is killed; after a rerun every point is there.
After every kill: no process lives on; after every rerun: no half files, no locks.

A run is a process forked from this one, which has imported everything: a kill falls into work, not into imports.
"""

import dataclasses
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from engine.core.command_line import OneSentenceParser, run_command
from harness.experiments import compose, job_runner
from harness.experiments.kinds import run_job
from harness.measurement.store import PointState, point_state

ROOT = Path(__file__).resolve().parents[1]
MARK = "FLOWPREFILL_KILLED_RUN"
SIMULATED = (
    "experiment=sim_smoke", "load.seed=0,1", "system=distserve", "workload.window_s=10", "-m", "output.workers=1",
)  # fmt: skip
MEASURED = (
    "experiment=smoke", "system=flowprefill", "model=cpu_tiny", "device=cpu", "device.pin=off", "workload.window_s=6",
    "output.share_machine=true",
)  # fmt: skip
ENDS_WITHIN_S = 30.0
RUN_WITHIN_S = 600.0


@dataclasses.dataclass(frozen=True, slots=True)
class Victim:
    """name: what is killed. words: how its command line is told from the others'; empty = the command itself."""

    name: str
    words: tuple[str, ...] = ()


SIDE_BY_SIDE = (*SIMULATED[:-1], "output.workers=2")
SWEEP, WORKER = Victim("sweep"), Victim("worker", ("spawn_main",))
CLIENT, SERVER = Victim("client"), Victim("server", ("engine.serving.server",))


class Run:
    """The command in a process of its own, and what it starts, known by a mark in the environment."""

    def __init__(self, cwd: Path, arguments: tuple[str, ...]) -> None:
        self.mark = uuid.uuid4().hex
        self.began_s = time.monotonic()
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(_as_command(cwd, arguments, self.mark))

    def wait(self, at_most_s: float) -> int | None:
        """Its exit status (a signal's number below 0); None when it takes longer."""
        deadline_s = time.monotonic() + at_most_s
        while self.status is None and time.monotonic() < deadline_s:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            else:
                time.sleep(0.005)
        return self.status

    def living(self) -> dict[int, str]:
        """Process ids and command lines of the run, as far as it lives."""
        found = {} if self.wait(0.01) is not None else {self.pid: "the command"}
        for entry in Path("/proc").iterdir():
            try:
                marked = entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes()
                if marked and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found

    def kill(self, victim: Victim, rng: random.Random) -> str | None:
        """Kill it; what was killed, None where there is none now."""
        if self.status is not None:
            return None
        if not victim.words:
            os.kill(self.pid, signal.SIGKILL)
            return victim.name
        pids = [pid for pid, line in self.living().items() if any(word in line for word in victim.words)]
        if not pids:
            return None
        os.kill(rng.choice(sorted(pids)), signal.SIGKILL)
        return victim.name

    def require_gone(self) -> None:
        """Raise RuntimeError for a process that outlives the run."""
        deadline_s = time.monotonic() + ENDS_WITHIN_S
        while left := self.living():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"orphans: {left}")
            time.sleep(0.05)


def _as_command(cwd: Path, arguments: tuple[str, ...], mark: str) -> int:
    """In the forked process: become the command."""
    os.chdir(cwd)
    told = os.open("told.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(told, 1)
    os.dup2(told, 2)
    os.environ.update({MARK: mark, "PYTHONPATH": str(ROOT)})
    sys.argv[:] = ["run", *arguments]
    job_runner.KEEP_EVERY_S = 0.0  # a write after every point, for the kills to fall into
    try:
        return compose.main(run_job)
    except BaseException as error:  # noqa: BLE001 - a fork must end here, whatever happens
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1


def kill_once(
    cwd: Path, arguments: tuple[str, ...], victim: Victim, after_s: float, rng: random.Random
) -> tuple[str | None, int | None]:
    """Run, kill after so long, run again. What was killed and the second run's exit status."""
    run = Run(cwd, arguments)
    killed = None if run.wait(after_s) is not None else run.kill(victim, rng)
    # A sweep goes on without a worker, a client without a server: then it ends by itself.
    run.wait(RUN_WITHIN_S)
    run.require_gone()
    again = Run(cwd, arguments)
    status = again.wait(RUN_WITHIN_S)
    again.require_gone()
    return killed, status


def files(results: Path) -> set[str]:
    """Everything below the results folder, by its path in it."""
    return {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}


def tables(results: Path) -> dict[str, bytes]:
    """Tables, points and bounds: all that an undisturbed run writes again, byte for byte."""
    kept = [path for path in results.rglob("*") if path.is_file() and path.name != "simulated_runs.json"]
    return {str(path.relative_to(results)): path.read_bytes() for path in kept}


def simulated_differences(cwd: Path, undisturbed: Mapping[str, bytes]) -> list[str]:
    """What a folder of simulated results lacks or has otherwise than an undisturbed run's."""
    results = cwd / "results"
    found = tables(results)
    return [name for name in sorted({*found, *undisturbed}) if found.get(name) != undisturbed.get(name)]


def measured_differences(cwd: Path, undisturbed: Mapping[str, bytes]) -> list[str]:
    """Likewise of measured ones, whose numbers and verdicts differ by nature: the files, each point whole."""
    results = cwd / "results"
    # The log of a server that was killed is kept on purpose; the list of what is not VALID is there where something is.
    aside = (".log", "_not_valid.csv")
    found = {name for name in files(results) if not name.endswith(aside)}
    wrong = sorted(found ^ {name for name in undisturbed if not name.endswith(aside)})
    points = {path.parent for path in results.rglob("records.csv.gz")}
    return wrong + [str(point) for point in sorted(points) if point_state(point) is not PointState.FINISHED]


def kills(
    arguments: tuple[str, ...],
    victims: tuple[Victim, ...],
    count: int,
    seed: int,
    differences: Callable[[Path, Mapping[str, bytes]], list[str]],
) -> int:
    """Kill `count` times, each in a fresh folder; the number of times something was wrong afterwards."""
    rng, wrong = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "fresh"
        fresh.mkdir()
        run = Run(fresh, arguments)
        if run.wait(RUN_WITHIN_S) != 0:
            raise RuntimeError((fresh / "told.txt").read_text())
        run.require_gone()
        whole_s = time.monotonic() - run.began_s
        undisturbed = tables(fresh / "results")
        print(f"undisturbed: {whole_s:.1f} s, {len(undisturbed)} files", flush=True)
        done = 0
        while done < count:
            cwd = Path(folder) / f"killed{done}"
            shutil.rmtree(cwd, ignore_errors=True)
            cwd.mkdir()
            if (fresh / "outputs" / "profiles").is_dir():
                shutil.copytree(fresh / "outputs" / "profiles", cwd / "outputs" / "profiles")
            after_s, victim = rng.uniform(0, whole_s), victims[done % len(victims)]
            killed, status = kill_once(cwd, arguments, victim, after_s, rng)
            if killed is None:
                continue  # it was over, or had no such process at that moment: another moment
            done += 1
            found = differences(cwd, undisturbed)
            bad = bool(found) or status != 0
            wrong += bad
            print(f"[{done}/{count}] {killed} killed after {after_s:.2f} s: {found or 'as undisturbed'}", flush=True)
            if bad:
                print((cwd / "told.txt").read_text(), flush=True)
    return wrong


def main() -> int:
    """0 when nothing was wrong."""
    parser = OneSentenceParser(prog="python -m bench.kill_and_rerun", description=__doc__)
    parser.add_argument("--simulated", type=int, default=14, help="kills of a simulated sweep in one process")
    parser.add_argument("--side-by-side", type=int, default=6, help="kills of a simulated sweep or of its workers")
    parser.add_argument("--measured", type=int, default=6, help="kills of a client or a server")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    wrong = 0
    if given.simulated:
        wrong += kills(SIMULATED, (SWEEP,), given.simulated, given.seed, simulated_differences)
    if given.side_by_side:
        wrong += kills(SIDE_BY_SIDE, (WORKER, SWEEP), given.side_by_side, given.seed, simulated_differences)
    if given.measured:
        wrong += kills(MEASURED, (CLIENT, SERVER), given.measured, given.seed, measured_differences)
    print(f"{given.simulated + given.side_by_side + given.measured} kills, {wrong} with a difference")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(run_command(main))

"""How fast the simulator is: python -m bench.simulation_speed [--requests 10000 100000 1000000] [--profile].

The engine's own scheduler, S-EDF with SLO-aware batching, operator granularity: a program like Llama-3-8B's (five
operators in each of 32 layers: 160) with noise, the paper's classes of lengths, Poisson arrivals at a share of what the
device sustains. The time of a run must grow with the number of requests and its memory must not: every record is
counted and dropped, and the scheduler keeps its last 200,000 samples of each kind. Times are CPU time of this process,
so that other work on the machine counts little; memory is the process's peak, imports included.

Exit code 1 when 100,000 requests take more than --at-most seconds.
"""

import argparse
import cProfile
import pstats
import resource
import sys
import time
from collections.abc import Iterator

import numpy as np

from engine.core.batch import Task, TaskKind
from engine.core.clock import seconds_to_ns
from engine.core.command_line import OneSentenceParser, run_command
from engine.core.record import RequestRecord, Status
from engine.core.slo import SLO
from engine.scheduling.batching import SLOAwareBatching
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.predictors.polynomial import PolynomialPredictor
from engine.scheduling.scheduler import Scheduler, SchedulerSettings
from engine.simulation.run import SimulatedRequest, SimulationResult, simulate
from engine.simulation.settings import SimulationSettings
from engine.simulation.timed_program import TimedProgram

LAYERS = 32
SHARES = np.array([6 / 58, 1 / 58, 4 / 58, 31 / 58, 16 / 58])
"""Of a layer's time at short prompts: qkv, attention, o, gate_up, down, about as their weights."""
CURVE = (0.010, 5.7e-5, 2.7e-9)
CLASSES = (("text", 646, 0.25, 226), ("image", 393, 0.5, 24), ("search", 5054, 4.0, 66), ("file", 4132, 6.0, 11))
LONGEST_TOKENS = 16_000
CHUNK = 10_000
REFERENCE_REQUESTS = 100_000


class LayeredDevice:
    """A prefill's quadratic time over 160 operators; only attention feels the square."""

    def __init__(self) -> None:
        self._rows = np.tile(SHARES, LAYERS) / LAYERS
        self._attention = np.tile(np.array([0.0, 1.0, 0.0, 0.0, 0.0]), LAYERS) / LAYERS
        self._boundary = np.ones(5 * LAYERS, dtype=np.bool_)

    def program(self, task: Task) -> TimedProgram:
        """A prefill's operators."""
        assert task.kind is TaskKind.PREFILL
        linear, square = CURVE[0], 0.0
        for sequence in task.sequences:
            end = sequence.new_tokens + sequence.context_tokens
            linear += CURVE[1] * sequence.new_tokens
            square += CURVE[2] * (end * end - sequence.context_tokens**2)
        return TimedProgram(self._rows * linear + self._attention * square, self._boundary)


def drawn_lengths(count: int, seed: int) -> Iterator[tuple[int, int]]:
    """(class, tokens) of each request, drawn in chunks."""
    random = np.random.default_rng(seed)
    weights = np.array([each[3] for each in CLASSES], dtype=float)
    means = np.array([each[1] for each in CLASSES], dtype=float)
    for first in range(0, count, CHUNK):
        size = min(CHUNK, count - first)
        kinds = random.choice(len(CLASSES), size, p=weights / weights.sum())
        tokens = np.clip(random.exponential(means[kinds]), 1, LONGEST_TOKENS).astype(int)
        yield from zip(kinds.tolist(), tokens.tolist(), strict=True)


def full_rate_rps() -> float:
    """Requests a second that keep the device busy all the time when each runs alone."""
    seconds = [CURVE[0] + CURVE[1] * n + CURVE[2] * n * n for _, n in drawn_lengths(CHUNK, seed=0)]
    return len(seconds) / sum(seconds)


def requests(count: int, rate_rps: float, seed: int) -> Iterator[SimulatedRequest]:
    random = np.random.default_rng(seed + 1)
    at_s = 0.0
    for place, (kind, tokens) in enumerate(drawn_lengths(count, seed)):
        at_s += random.exponential(1 / rate_rps)
        task, _, slo_s, _ = CLASSES[kind]
        yield SimulatedRequest(f"r{place}", seconds_to_ns(at_s), tokens, 1, SLO(seconds_to_ns(slo_s)), task)


class Counting:
    """Takes records and keeps none."""

    def __init__(self) -> None:
        self.met = 0
        self.ended = 0

    def __call__(self, record: RequestRecord) -> None:
        """One request is over."""
        self.ended += 1
        first_ns, slo_ns = record.first_token_at_ns, record.ttft_slo_ns
        if record.status is Status.OK and first_ns is not None and slo_ns is not None:
            self.met += first_ns - record.due_at_ns <= slo_ns


def run(count: int, rate_rps: float) -> tuple[SimulationResult, Counting]:
    limits = SchedulerSettings(23_000, 16, 1 << 34, 1 << 20)
    predictor = PolynomialPredictor((*CURVE, 0.0))
    scheduler = Scheduler(SlackEDF(), SLOAwareBatching(), predictor, limits, activation_bytes)
    counting = Counting()
    settings = SimulationSettings(round_s=1e-4, signal_delay_s=5e-5, launch_ahead_s=5e-4, noise_cv=0.03)
    return simulate(
        requests(count, rate_rps, seed=3), scheduler, LayeredDevice(), settings, on_record=counting
    ), counting


def activation_bytes(task: Task) -> int:
    return task.new_tokens * 65536


def timed(count: int, rate_rps: float) -> float:
    started_s = time.process_time()
    result, counting = run(count, rate_rps)
    spent_s = time.process_time() - started_s
    report = result.report
    busy = report.executed_ns / result.ended_at_ns
    print(
        f"{count:>9} requests {spent_s:8.2f} s CPU {spent_s / count * 1e6:7.1f} us a request"
        f" {result.events / spent_s:9.0f} events/s, device busy {busy:.0%}, {report.preemptions} preemptions,"
        f" attainment {counting.met / counting.ended:.3f}, peak memory {peak_mib():.0f} MiB",
        flush=True,
    )
    return spent_s


def peak_mib() -> float:
    """Most memory this process had at once, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    parser = OneSentenceParser(
        prog="python -m bench.simulation_speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--requests", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--load", type=float, default=0.9, help="share of the rate that unbatched work sustains")
    parser.add_argument("--at-most", type=float, default=30.0, help="seconds for 100,000 requests")
    parser.add_argument("--profile", action="store_true", help="show where the time of the first count goes")
    given = parser.parse_args()
    rate_rps = given.load * full_rate_rps()
    print(f"{rate_rps:.2f} req/s, {given.load:.0%} of what the device sustains")
    if given.profile:
        profiler = cProfile.Profile()
        profiler.runcall(run, given.requests[0], rate_rps)
        pstats.Stats(profiler).sort_stats("tottime").print_stats(40)
        return 0
    too_slow = False
    for count in given.requests:
        too_slow |= timed(count, rate_rps) * REFERENCE_REQUESTS / count > given.at_most
    return int(too_slow)


if __name__ == "__main__":
    sys.exit(run_command(main))

"""How long one scheduling call takes with a full queue: python -m bench.scheduling_call [calls].

S-EDF with SLO-aware batching and the polynomial predictor, lengths like the paper's classes. Two kinds of
call, the two that the paper decides at: an arrival while a prefill executes, and the completion of a prefill, after
which the next batch is formed. `free KV`: every prompt fits; `no KV`: nothing that waits fits, so that all of it is
passed over.

Times are CPU time of the calling thread, so that other work on the machine does not count.
"""

import gc
import random
import statistics
import time
from collections.abc import Sequence

from engine.core.batch import Task
from engine.core.clock import NS_PER_MS, NS_PER_S
from engine.core.command_line import OneSentenceParser, run_command
from engine.core.commands import Pause, ReleaseKV, Start
from engine.core.events import Arrival, Cancelled, Completion, Event, KVReleased, Output
from engine.core.request import Request
from engine.core.slo import SLO
from engine.scheduling.batching import SLOAwareBatching
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.predictors.polynomial import PolynomialPredictor
from engine.scheduling.scheduler import Scheduler, SchedulerSettings

LIVE = (100, 1000, 3000, 10_000)
MEAN_TOKENS = (646, 393, 5054, 4132)
MEAN_WEIGHTS = (226, 24, 66, 11)
BLOCK_TOKENS = 16
FIRST_TOKENS = 16_000
CHARGED_NS = 10_000  # the virtual clock's step between calls
CALLS = 300


class Bench:
    """A scheduler with `live` requests, one of which executes."""

    def __init__(self, live: int, full: bool = False) -> None:
        """full: what executes holds all KV blocks, so that nothing else fits."""
        self._random = random.Random(live)
        self._now_ns = NS_PER_S
        self._seq = 0
        self._full = full
        kv_blocks = FIRST_TOKENS // BLOCK_TOKENS + 1 if full else 1 << 40
        settings = SchedulerSettings(kv_blocks, BLOCK_TOKENS, 1 << 40, 1 << 20)
        predictor = PolynomialPredictor((0.02, 6e-5, 5e-10, 0.0))
        self._scheduler = Scheduler(SlackEDF(), SLOAwareBatching(), predictor, settings, _activation_bytes)
        self._executing = self._first_task()
        self._handle([self._arrival() for _ in range(live - 1)])

    def arrival_ns(self) -> int:
        """Time of a call with one arrival; the request leaves again, uncounted."""
        event = self._arrival()
        spent_ns, commands = self._handle([event])
        assert not any(isinstance(command, Pause) for command in commands)
        self._handle([Cancelled(self._now_ns, 0, event.request.request_id)])
        return spent_ns

    def completion_ns(self) -> tuple[int, int]:
        """Time of a call with the completion of what executes, and the size of the batch it starts."""
        task = self._executing
        outputs = tuple(Output(sequence.request_id, 1, "length") for sequence in task.sequences)
        spent_ns, commands = self._handle([Completion(self._now_ns, 0, task.task_id, 0, outputs)])
        self._executing = next(command.task for command in commands if isinstance(command, Start))
        released: list[Event] = [
            KVReleased(self._now_ns, 0, m.request_id) for m in commands if isinstance(m, ReleaseKV)
        ]
        self._handle([*released, *(self._arrival() for _ in outputs)])
        return spent_ns, len(self._executing.sequences)

    def _first_task(self) -> Task:
        # Due before all others that are in time, so that no arrival preempts it; with a full pool, after them: all of
        # them are asked and found not to fit.
        slo_ns = (1000 if self._full else 4) * NS_PER_S
        self._seq += 1
        first = Request("r0", 0, self._now_ns, FIRST_TOKENS, 1, SLO(slo_ns))
        commands = self._handle([Arrival(self._now_ns, 0, first)])[1]
        return next(command.task for command in commands if isinstance(command, Start))

    def _arrival(self) -> Arrival:
        mean_tokens = self._random.choices(MEAN_TOKENS, MEAN_WEIGHTS)[0]
        tokens = min(16_000, 1 + int(self._random.expovariate(1 / mean_tokens)))
        # Half of what waits is late already.
        due_in_s = self._random.uniform(5, 10) if self._random.random() < 0.5 else self._random.uniform(-5, 0)
        slo_ns = int(6 * NS_PER_S)
        self._seq += 1
        arrived_at_ns = self._now_ns + int(due_in_s * NS_PER_S) - slo_ns
        request = Request(f"r{self._seq}", self._seq, arrived_at_ns, tokens, 1, SLO(slo_ns))
        return Arrival(self._now_ns, 0, request)

    def _handle(self, events: Sequence[Event]) -> tuple[int, list[object]]:
        self._now_ns += CHARGED_NS
        started_ns = time.thread_time_ns()
        commands = self._scheduler.handle(events, self._now_ns)
        return time.thread_time_ns() - started_ns, list(commands)


def _activation_bytes(task: Task) -> int:
    return task.new_tokens * 4096


def row(what: str, live: int, samples_ns: list[int], note: str = "") -> str:
    """One line of the table."""
    ms = sorted(sample / NS_PER_MS for sample in samples_ns)
    p99 = ms[min(len(ms) - 1, int(len(ms) * 0.99))]
    return f"{what:<22}{live:>8}{statistics.median(ms):>12.3f}{p99:>10.3f}{ms[-1]:>10.3f}  {note}"


def main() -> int:
    parser = OneSentenceParser(prog="python -m bench.scheduling_call", description=__doc__)
    parser.add_argument("calls", type=int, nargs="?", default=CALLS, help=f"calls of each kind (default {CALLS})")
    calls = max(1, parser.parse_args().calls)
    print(f"{'call':<22}{'live':>8}{'median ms':>12}{'p99 ms':>10}{'max ms':>10}")
    for live in LIVE:
        bench = Bench(live)
        gc.collect()
        print(row("arrival", live, [bench.arrival_ns() for _ in range(calls)]))
        bench = Bench(live)
        both = [bench.completion_ns() for _ in range(calls)]
        batch = statistics.mean(size for _, size in both)
        print(row("completion, free KV", live, [spent for spent, _ in both], f"mean batch {batch:.1f}"))
        bench = Bench(live, full=True)
        print(row("arrival, no KV", live, [bench.arrival_ns() for _ in range(calls)]))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))

"""Synthetic traces: seeded arrivals x the class laws of QwenTrace A. Same settings, same bytes, on every machine.

python -m workloads.synthetic --requests 327 --span-s 118.8 --seed 0 --out trace.csv
"""

import csv
import io
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command
from engine.core.trace import Trace, TraceRow
from workloads.arrivals import generated_arrivals_s
from workloads.class_laws import CLASS_LAWS, ClassLaw, QuantileLaw
from workloads.whole_file import write_whole

T = TypeVar("T")

COLUMNS = ("arrival_s", "class", "input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class SyntheticSettings:
    """requests arrive over span_s seconds; `gamma` gaps have the coefficient of variation process_cv."""

    requests: int = 327
    span_s: float = 118.8
    process: Literal["poisson", "gamma"] = "poisson"
    process_cv: float | None = None
    trace_seed: int = 0

    def __post_init__(self) -> None:
        if self.requests < 1:
            raise ValueError(f"requests must be at least 1, got {self.requests}")
        if not self.span_s > 0:
            raise ValueError(f"span_s must be above 0, got {self.span_s}")
        if (self.process == "gamma") != (self.process_cv is not None):
            raise ValueError("process_cv goes with process=gamma, and only with it")
        if self.process_cv is not None and not 0 < self.process_cv <= 100:
            raise ValueError(f"process_cv must be above 0 and at most 100, got {self.process_cv}")


def generate(settings: SyntheticSettings, name: str = "synthetic") -> Trace:
    """A trace with the class mix of the table (to the nearest request) and lengths by each class's law.

    Lengths are stratified: a class of n requests has one length in each of n equal slices of probability, in random
    order, so that even a short trace has the table's mean and spread. Instants are rounded to a millisecond.
    """
    rng = random.Random(f"synthetic trace {settings.trace_seed}")
    tasks = [task for task, count in class_counts(settings.requests).items() for _ in range(count)]
    tasks = _shuffled(tasks, rng)
    inputs = {task: iter(stratified(law.inputs, tasks.count(task), rng)) for task, law in CLASS_LAWS.items()}
    outputs = {task: iter(stratified(law.outputs, tasks.count(task), rng)) for task, law in CLASS_LAWS.items()}
    instants = generated_arrivals_s(settings.requests, settings.span_s, settings.process_cv or 1.0, rng)
    rows = (
        TraceRow(round(instant, 3), next(inputs[task]), next(outputs[task]), task)
        for instant, task in zip(instants, tasks, strict=True)
    )
    return Trace(name, tuple(rows))


def class_counts(requests: int, laws: Mapping[str, ClassLaw] = CLASS_LAWS) -> dict[str, int]:
    """Requests per class in the proportions of the table; what rounding leaves goes to the largest remainders."""
    total = sum(law.requests for law in laws.values())
    shares = {task: requests * law.requests / total for task, law in laws.items()}
    counts = {task: int(share) for task, share in shares.items()}
    by_remainder = sorted(shares, key=lambda task: counts[task] - shares[task])
    for task in by_remainder[: requests - sum(counts.values())]:
        counts[task] += 1
    return counts


def stratified(law: QuantileLaw, count: int, rng: random.Random) -> list[int]:
    """`count` draws, one in each of `count` equal slices of probability, in random order."""
    return _shuffled([law.tokens_at((i + rng.random()) / count) for i in range(count)], rng)


def trace_csv(trace: Trace) -> str:
    """The trace as the CSV that `workload=csv` reads (with columns.class=class)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in trace.rows:
        writer.writerow((f"{row.arrival_s:.3f}", row.task, row.input_tokens, row.output_tokens))
    return out.getvalue()


def _shuffled(items: Sequence[T], rng: random.Random) -> list[T]:
    """A shuffle from random() alone, the one stream Python promises never to change."""
    keyed = sorted((rng.random(), i) for i in range(len(items)))
    return [items[i] for _, i in keyed]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command: write a synthetic trace whole, or not at all."""
    parser = OneSentenceParser(prog="python -m workloads.synthetic", description="Write a synthetic trace (CSV).")
    parser.add_argument("--requests", type=int, default=327)
    parser.add_argument("--span-s", type=float, default=118.8)
    parser.add_argument("--process", choices=("poisson", "gamma"), default="poisson")
    parser.add_argument("--process-cv", type=float, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    try:
        settings = SyntheticSettings(given.requests, given.span_s, given.process, given.process_cv, given.seed)
        text = trace_csv(generate(settings))
        write_whole(given.out, text.encode())
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return MISTAKE_STATUS
    print(f"{given.out}: {given.requests} requests over {given.span_s:g} s")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))

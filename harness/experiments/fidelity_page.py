"""docs/fidelity.md from the rows of results/tables/fidelity.csv: the same rows, the same page."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Row = Mapping[str, str]
Key = tuple[str, str]

ATTAINMENT_POINTS = 3.0
"""How far the simulated attainment may be from the measured one, in percentage points."""
BLOCKING_SHARE = 0.25
"""How far the simulated mean blocking time may be from the measured one."""

HEAD = """# Fidelity of the simulator

Written by `python -m harness.experiments.fidelity` (`make fidelity`) from `results/tables/fidelity.csv`; do not edit.

The same requests, instants, SLOs and settings, for real and simulated. Real: points of `results/raw/goodput_vs_rate`,
engine and HTTP on a CPU. Simulated: the scheduler, policies and batching of the engine on `device=cpu_simulated`, whose
operator times were measured one by one (`python -m engine.torch_backend.profile`). The two are checked to have the same
settings, due instants, lengths and SLOs, request for request, before they are compared; SLO speed factor and predictor
come from the profile of the real runs in both. Each line is the mean over {seeds} seeds.

Tolerances: attainment within {points:g} points, mean blocking time within {share:.0%}.
"""
REPLAY = """## The decisions of a real run, replayed

The other half of fidelity: the scheduler itself is the same code. A server writes down what its scheduler was told and
what it answered; a fresh scheduler, fed the same events, has to answer the same at every call, exactly.

```
python -m engine.serving.server --port 8000 --decision-log outputs/decisions.jsonl
python -m harness.experiments.run experiment=smoke system=external system.base_url=http://127.0.0.1:8000 \\
  output.results=outputs/replayed
# stop the server (Ctrl-C), then
python -m engine.serving.replay outputs/decisions.jsonl
```

It says how many calls were replayed with the same commands, or shows the first that differs (exit status 1). The test
`tests/serving/test_engine_lifecycle.py` does it with a real engine process.
"""


@dataclass(frozen=True, slots=True)
class Means:
    """Means over seeds of one series at one rate in one world."""

    rows: tuple[Row, ...]

    def of(self, column: str) -> float | None:
        """None where no point has a value."""
        values = [float(row[column]) for row in self.rows if row.get(column)]
        return math.fsum(values) / len(values) if values else None


class Comparison:
    """The rows of the table by series and rate."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = tuple(rows)
        self.keys: list[Key] = list(dict.fromkeys((row["series"], row["rate_scale"]) for row in rows))
        self.seeds = len({row["seed"] for row in rows})
        self.classes = sorted({name for row in rows for name in row if name.startswith("attainment_")})

    def means(self, key: Key, world: str) -> Means:
        """Of one line."""
        return Means(tuple(r for r in self._rows if (r["series"], r["rate_scale"]) == key and r["world"] == world))

    def values(self, column: str, world: str = "measured") -> list[float]:
        """Of all points that have one."""
        return [float(row[column]) for row in self._rows if row["world"] == world and row.get(column)]


def page(rows: Sequence[Row]) -> str:
    """The whole page. rows: of the table, as text, in its order."""
    found = Comparison(rows)
    parts = [HEAD.format(seeds=found.seeds, points=ATTAINMENT_POINTS, share=BLOCKING_SHARE)]
    parts.append("## The simulation as it is\n\n" + verdicts(found, "simulated"))
    parts.append(_why(found))
    parts.append(
        "## With the speed of each run, and the time around the engine, as measured\n\n"
        + verdicts(found, "as_measured")
        + "\n"
        + _what_is_left(found)
    )
    parts.append(
        "## By class\n\nAttainment in %: measured / simulated / with the measured speed.\n\n" + _classes(found)
    )
    parts.append("## Latency, blocking, preemptions\n\nEach: measured / simulated / with the measured speed.\n\n")
    parts[-1] += _latencies(found)
    parts.append(REPLAY)
    return "\n".join(parts)


def verdicts(found: Comparison, world: str) -> str:
    """The table of differences, and how many lines hold."""
    lines, held = [], []
    for key in found.keys:
        real, ours = found.means(key, "measured"), found.means(key, world)
        points = _difference(real.of("attainment"), ours.of("attainment"), lambda a, b: 100 * (b - a))
        share = _difference(real.of("blocking_mean_ms"), ours.of("blocking_mean_ms"), lambda a, b: b / a - 1)
        outcomes = [abs(points) <= ATTAINMENT_POINTS] if points is not None else []
        outcomes += [abs(share) <= BLOCKING_SHARE] if share is not None else []
        held.append(bool(outcomes) and all(outcomes))
        lines.append(
            (
                *key,
                _percent(real.of("attainment")),
                _percent(ours.of("attainment")),
                _show(points, "{:+.1f}"),
                _show(real.of("blocking_mean_ms"), "{:.2f}"),
                _show(ours.of("blocking_mean_ms"), "{:.2f}"),
                _show(None if share is None else 100 * share, "{:+.0f}%"),
                "yes" if held[-1] else "**no**",
            )
        )
    head = (
        "series", "rate scale", "attainment %, measured", "simulated", "points",
        "mean blocking ms, measured", "simulated", "difference", "within",
    )  # fmt: skip
    return _table(head, lines) + f"\n{sum(held)} of {len(held)} lines within both tolerances.\n"


def _why(found: Comparison) -> str:
    """Measured evidence of what the simulation lacks."""
    lines = []
    for key in found.keys:
        real = found.means(key, "measured")
        slowdowns = [float(row["slowdown"]) for row in real.rows]
        lone = [float(row["around_engine_ms"]) for row in real.rows if row["around_engine_ms"]]
        shown = [f"{value:.3f}" for value in (min(slowdowns), statistics.median(slowdowns), max(slowdowns))]
        around = _show(statistics.median(lone) if lone else None, "{:.1f}")
        lines.append((*key, _percent(real.of("executor_busy_share")), *shown, around))
    around_ms = max(found.values("around_engine_ms", "as_measured"), default=0.0)
    slowdowns, ratio = found.values("slowdown"), statistics.median(found.values("profile_ratio"))
    least, most = min(slowdowns), max(slowdowns)
    scheduling = max(found.values("scheduling_share"), default=0.0)
    text = f"""## Why it differs

What can be read off the real runs:

- **How fast the machine was.** The engine counts the time its executor is busy. Over the time that the simulation
  needs for the same prefill tokens it is the run's `slowdown`, {least:.3f} to {most:.3f}: other work on its core, cold
  caches, the scheduler's own thread. The table has the least, the median and the largest over seeds. Within a line the
  requests' lengths are the same and only their instants differ: what spreads there is the machine, which was shared
  (`docs/results.md`). Its two profiles, hours apart, differ likewise: whole prefills of the one taken before the real
  runs are {ratio:.3f} of the later one's, median over lengths.{_idle(found)}
- **The time around the engine**: client, HTTP, the channel between the two processes, the reply. It is the TTFT, from
  the due instant, of short prompts that had the engine for themselves, less their prefill as profiled times the
  slowdown: {around_ms:.1f} ms, median over points. In the simulation a request reaches the engine at once.
- **Scheduling**: rounds of the scheduler took {scheduling:.2%} of the execution time at the most. The simulated device
  charges `round_s` for each before its commands take effect.

"""
    head = ("series", "rate scale", "executor busy %", "slowdown, least", "median", "largest", "around the engine, ms")
    return text + _table(head, lines)


def _idle(found: Comparison) -> str:
    """Of one system, whether an engine that idles between requests is slower in each: cold when it wakes."""
    busy = {key: found.means(key, "measured").of("executor_busy_share") or 0.0 for key in found.keys}
    least = {key: min(float(row["slowdown"]) for row in found.means(key, "measured").rows) for key in found.keys}
    idlest = min(found.keys, key=lambda key: busy[key])
    busiest = max((key for key in found.keys if key[0] == idlest[0]), key=lambda key: busy[key])
    if busy[busiest] - busy[idlest] < 0.2 or least[idlest] <= least[busiest]:
        return ""
    return (
        f"\n  An engine that idles between requests pays more: the least slowdown of {idlest[0]} is"
        f"\n  {least[idlest]:.3f} where it is busy {busy[idlest]:.0%} of the time and {least[busiest]:.3f} where"
        f" {busy[busiest]:.0%}."
    )


def _what_is_left(found: Comparison) -> str:
    plain, delayed, slowed = (_largest(found, world) for world in ("simulated", "delayed", "as_measured"))
    around_s = max(found.values("around_engine_ms", "as_measured"), default=0.0) / 1e3
    return f"""Each point is simulated again with its arrivals delayed by the time around the engine
(`device.simulation.arrival_delay_s={around_s:.4f}`) and its operators as much slower as those of its own run
(`device.simulation.slowdown`, per point in the table): two measured numbers, neither of them fitted to attainment or
blocking. The largest difference in attainment is {plain:.1f} points as it is, {delayed:.1f} with the delay alone and
{slowed:.1f} with both. That explains; it forecasts nothing: as it is, a simulation tells as much of a machine as its
profile does.
"""


def _largest(found: Comparison, world: str) -> float:
    differences = (
        _difference(found.means(key, "measured").of("attainment"), found.means(key, world).of("attainment"), _points)
        for key in found.keys
    )
    return max((abs(value) for value in differences if value is not None), default=0.0)


def _points(measured: float, simulated: float) -> float:
    return 100 * (simulated - measured)


def _classes(found: Comparison) -> str:
    lines = [(*key, *(_worlds(found, key, name, _percent) for name in found.classes)) for key in found.keys]
    return _table(("series", "rate scale", *(name.removeprefix("attainment_") for name in found.classes)), lines)


def _latencies(found: Comparison) -> str:
    columns = {
        "TTFT p50, ms": ("ttft_p50_s", lambda value: _show(value and 1e3 * value, "{:.1f}")),
        "TTFT p99, s": ("ttft_p99_s", lambda value: _show(value, "{:.2f}")),
        "blocking p50, ms": ("blocking_p50_ms", lambda value: _show(value, "{:.2f}")),
        "blocking p99, ms": ("blocking_p99_ms", lambda value: _show(value, "{:.1f}")),
        "preemptions": ("preemptions", lambda value: _show(value, "{:.0f}")),
        "decisions": ("decisions", lambda value: _show(value, "{:.0f}")),
    }
    lines = [(*key, *(_worlds(found, key, name, show) for name, show in columns.values())) for key in found.keys]
    return _table(("series", "rate scale", *columns), lines)


def _worlds(found: Comparison, key: Key, column: str, show: Callable[[float | None], str]) -> str:
    return " / ".join(show(found.means(key, world).of(column)) for world in ("measured", "simulated", "as_measured"))


def _difference(measured: float | None, simulated: float | None, how: Callable[[float, float], float]) -> float | None:
    return None if measured is None or simulated is None else how(measured, simulated)


def _percent(value: float | None) -> str:
    return _show(value and 100 * value, "{:.1f}")


def _show(value: float | None, how: str) -> str:
    return "-" if value is None else how.format(value)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    text = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(line) for line in lines)]
    return "".join(f"| {line} |\n" for line in text)

"""What a search and a max goodput table say, in sentences for the person who asked for it."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.measurement.goodput_search import SearchSettings, Stopped, Tried, estimate, limit, stopped
from harness.measurement.goodput_table import GROUP_COLUMNS
from harness.measurement.verdict import Verdict

WORDS = {"": "", "below_lowest": "below ", "above_highest": "at least "}
BEYOND = {"below_lowest": "below", "above_highest": "above"}
WHY = {
    Verdict.CLIENT_BOUND: "the client, not the server, was the bottleneck",
    Verdict.SERVER_FAILED: "the server failed, or served nothing",
    Verdict.INCOMPLETE: "the measurement was incomplete",
}
"""What stands in the way at a rate that gave no VALID measurement."""

Rows = Sequence[Mapping[str, str]]


def search_sentence(label: str, tried: Sequence[Tried], settings: SearchSettings) -> str:
    """What one search found, and what kept it from finding more."""
    not_valid = sum(one.verdict is not Verdict.VALID for one in tried)
    counts = f"{len(tried)} measurements at {len({one.rate for one in tried})} rates"
    counts += f", {not_valid} of them not VALID" if not_valid else ""
    found, barrier = estimate(tried, settings.target), limit(tried, settings.target)
    if found is None:
        assert barrier is not None  # something was tried
        why = f"down to rate_scale {min(one.rate for one in tried):g} {WHY[barrier.verdict]}"
        return f"max goodput of {label} is not known: {why} ({counts})"
    words = {"": "is", "below_lowest": "lies below", "above_highest": "is at least"}[found.bound]
    text = f"max goodput of {label} {words} rate_scale {found.known:.4g}"
    if found.bound and barrier is not None:
        text += f"; {BEYOND[found.bound]} it, at rate_scale {barrier.rate:g}, {WHY[barrier.verdict]}"
    elif stopped(tried, settings) is Stopped.BUDGET:
        counts += ", all that search.budget allows"
    return f"{text} ({counts})"


def goodput_sentences(table: Path, not_valid: Path) -> list[str]:
    """One per series: its max goodput, and up to which rate even its worst class keeps the target.

    not_valid: the list of the experiment's measurements that are not VALID; it need not be there.
    """
    listed = _rows(not_valid) if not_valid.is_file() else []
    return [_sentence(row, [one for one in listed if _series(one) == _series(row)]) for row in _rows(table)]


def _rows(path: Path) -> Rows:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _series(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in (*GROUP_COLUMNS, "series"))


def _sentence(row: Mapping[str, str], not_valid: Rows) -> str:
    if not row["max_goodput_rate_scale"]:
        verdicts = ", ".join(sorted({one["verdict"] for one in not_valid}))
        return (
            f"{row['series']}: no max goodput, since none of its {row['points_left_out']} points is VALID"
            f"{f' ({verdicts})' * bool(verdicts)}"
        )
    text = f"{row['series']}: max goodput {_rate(row, 'max_goodput')}{_barrier(row, not_valid)}"
    # A trace without classes has one, without a name.
    if row["worst_class"] in ("", "unnamed"):
        return text
    few = ", too few to rely on" if row["worst_class_few_requests"] == "true" else ""
    return (
        f"{text}; worst class {row['worst_class']} ({row['worst_class_requests']} requests{few}): "
        f"{_rate(row, 'max_goodput_worst_class')}"
    )


def _barrier(row: Mapping[str, str], not_valid: Rows) -> str:
    """Why there is only a bound, where points that are not VALID are the reason; "" else."""
    bound, known = row["max_goodput_bound"], float(row["max_goodput_rate_scale"])
    beyond = {
        "above_highest": [one for one in not_valid if float(one["rate_scale"]) > known],
        "below_lowest": [one for one in not_valid if float(one["rate_scale"]) < known],
    }.get(bound, [])
    if not beyond:
        return ""
    nearest = min(beyond, key=lambda one: abs(float(one["rate_scale"]) - known))
    return f" ({BEYOND[bound]} it {WHY[Verdict(nearest['verdict'])]})"


def _rate(row: Mapping[str, str], name: str) -> str:
    word, scale = WORDS[row[f"{name}_bound"]], float(row[f"{name}_rate_scale"])
    rps = row[f"{name}_rps"]
    text = f"{word}rate_scale {scale:.3g}{_interval(row, name)}"
    return text + (f" = {float(rps):.3g} requests/s" if rps else "")


def _interval(row: Mapping[str, str], name: str) -> str:
    """From resampling the seeds; "" where there is one seed, a dash where an end is not known."""
    ends = [row.get(f"{name}_{end}_rate_scale", "") for end in ("low", "high")]
    if not any(ends):
        return ""
    low, high = (f"{float(end):.3g}" if end and 0 < float(end) < math.inf else "–" for end in ends)
    return f" [{low}, {high}]"

"""What a max goodput table says, in sentences for the person who asked for it."""

import csv
from collections.abc import Mapping
from pathlib import Path

WORDS = {"": "", "below_lowest": "below ", "above_highest": "at least "}


def goodput_sentences(table: Path) -> list[str]:
    """One per series: its max goodput, and up to which rate even its worst class keeps the target."""
    with table.open(newline="", encoding="utf-8") as file:
        return [_sentence(row) for row in csv.DictReader(file)]


def _sentence(row: Mapping[str, str]) -> str:
    if not row["max_goodput_rate_scale"]:
        return f"{row['series']}: no max goodput, since none of its {row['points_left_out']} points is VALID"
    text = f"{row['series']}: max goodput {_rate(row, 'max_goodput')}"
    # A trace without classes has one, without a name.
    if row["worst_class"] in ("", "unnamed"):
        return text
    few = ", too few to rely on" if row["worst_class_few_requests"] == "true" else ""
    return (
        f"{text}; worst class {row['worst_class']} ({row['worst_class_requests']} requests{few}): "
        f"{_rate(row, 'max_goodput_worst_class')}"
    )


def _rate(row: Mapping[str, str], name: str) -> str:
    word, scale = WORDS[row[f"{name}_bound"]], float(row[f"{name}_rate_scale"])
    rps = row[f"{name}_rps"]
    return f"{word}rate_scale {scale:.3g}" + (f" = {float(rps):.3g} requests/s" if rps else "")

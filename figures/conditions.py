"""What must be alike for two points to be compared, and the labels of panels, classes and footnotes."""

from collections.abc import Iterable

import pandas as pd

from figures.results import MissingInputError
from harness.measurement.verdict import Verdict

CONDITION = (
    "workload", "protocol", "model", "device", "source", "length_scale", "slo_scale", "slo_speed_factor",
)  # fmt: skip
"""Columns that separate panels: points that differ in one of them are never averaged or joined by a line."""

CLASS_ORDER = ("text", "image", "search", "file")


def with_conditions(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with every condition column present and no gaps in them (a gap would drop its rows in a grouping)."""
    filled = frame.copy()
    for column in CONDITION:
        if column not in filled.columns:
            filled[column] = ""
        elif filled[column].isna().any():
            filled[column] = filled[column].astype(object).fillna("")
    return filled


def condition_labels(frame: pd.DataFrame, ignore: tuple[str, ...] = ()) -> pd.Series:
    """One label per row, made of the condition columns that vary in the frame; the workload's name where none does.

    A column that the ones before it decide (the speed factor of each model) is left out.
    """
    varying: list[str] = []
    for column in (name for name in CONDITION if name not in ignore and name in frame.columns):
        if frame.groupby(varying)[column].nunique().gt(1).any() if varying else frame[column].nunique() > 1:
            varying.append(column)
    varying = varying or ["workload"]
    parts = [
        frame[column].map(lambda value, name=column: str(value) if name == "workload" else _named(name, value))
        for column in varying
    ]
    labels = parts[0].astype(str)
    for part in parts[1:]:
        labels = labels.str.cat(part.astype(str), sep=", ")
    return labels


def classes_of(frame: pd.DataFrame) -> list[str]:
    """Request classes a table has columns for (`n_<class>` beside `attainment_<class>`), the paper's first."""
    found = [name[2:] for name in frame.columns if name.startswith("n_") and f"attainment_{name[2:]}" in frame.columns]
    return in_class_order(name for name in found if frame[f"n_{name}"].fillna(0).sum() > 0)


def in_class_order(names: Iterable[str]) -> list[str]:
    """Distinct class names, those of the paper first."""
    distinct = set(names)
    return [name for name in CLASS_ORDER if name in distinct] + sorted(distinct - set(CLASS_ORDER))


def is_valid(verdict: pd.Series) -> pd.Series:
    """Whether each point's measurement was judged fit for use."""
    return verdict == Verdict.VALID.value


def refuse_twins(frame: pd.DataFrame, axis: str, experiment: str, by: tuple[str, ...] = ()) -> None:
    """Raise MissingInputError where one series has two points for the same condition, axis value and seed."""
    keys = [*CONDITION, "series", *by, axis, "seed"]
    twins = frame[frame.duplicated(keys, keep=False)]
    if not twins.empty:
        first = twins.iloc[0]
        raise MissingInputError(
            f"in {experiment}, series {first['series']!r} has several points at {axis} {first[axis]:g}, seed "
            f"{first['seed']}: settings that differ need series names that differ"
        )


def footnote(rows: pd.DataFrame, extra: str = "") -> str:
    """Model, device, measured or simulated, SLO speed factor and seeds of what is drawn, on one line."""
    parts = [
        f"Model {_listed(rows, 'model')}",
        f"device {_listed(rows, 'device')}",
        _listed(rows, "source").upper() if "simulated" in set(rows["source"]) else _listed(rows, "source"),
    ]
    factors = pd.to_numeric(rows["slo_speed_factor"], errors="coerce").dropna()
    if len(factors):
        parts.append(f"SLOs and arrival gaps × {_span(factors)} (slo_speed_factor)")
    if rows["seeds"].notna().any():
        count = _span(rows["seeds"].dropna())
        parts.append(f"{count} seed{'' if count == '1' else 's'}")
    return "; ".join(parts) + ("." if not extra else f". {extra}")


def interval_note(rows: pd.DataFrame) -> str:
    """What the intervals of these rows are, and what a hollow mark means if there is one."""
    names = {
        "seeds": "Bars: 95\u00a0% interval from resampling seeds.",
        "wilson": "Bars: 95\u00a0% Wilson interval over requests (one seed).",
    }
    kinds = [text for kind, text in names.items() if kind in set(rows["interval"])]
    hollow = ["Hollow: measurement judged invalid."] if (rows["invalid_seeds"] > 0).any() else []
    return " ".join(kinds + hollow)


def _named(column: str, value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{column} {text}"


def _listed(rows: pd.DataFrame, column: str) -> str:
    values = sorted({str(value) for value in rows[column].dropna()} - {""})
    return " and ".join(values) or "unknown"


def _span(values: pd.Series) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low}-{high}"

"""The max goodput tables as figures and claims read them."""

from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd

from figures.attainment_rows import in_drawing_order
from figures.conditions import CONDITION, with_conditions
from figures.results import MissingInputError, Results

UNITS = ("rate_scale", "rps")
NUMBERS = tuple(f"max_goodput_{end}{unit}" for unit in UNITS for end in ("", "low_", "high_"))
RATIOS = ("reference", "ratio", "ratio_low", "ratio_high", "ratio_bound", "ratio_seeds")
NEEDED = ("series", "system", "granularity", "seeds", "max_goodput_bound", *NUMBERS, *RATIOS)

SIGNS: Mapping[str, str] = MappingProxyType(
    {"above_highest": "≥ ", "below_lowest": "< ", "at_least": "≥ ", "at_most": "≤ "}
)
"""What stands before a number that is a bound."""


def max_goodput_rows(results: Results, experiment: str) -> pd.DataFrame:
    """One row per condition and series with a max goodput or a bound of it.

    bound: "" for a number, "below_lowest" or "above_highest" for the rate that bounds it. An interval's end is empty
    with one seed, 0 or inf where the rates tried do not bound it. Raises MissingInputError.
    """
    name = f"{experiment}_max_goodput"
    frame = with_conditions(results.table(name, NEEDED))
    frame = frame.rename(columns={"max_goodput_bound": "bound"})
    for column in ("bound", "ratio_bound"):
        frame[column] = frame[column].astype(object).fillna("")  # an empty column is read as numbers
    frame = frame[frame["max_goodput_rate_scale"].notna()]
    if frame.empty:
        raise MissingInputError(f"the table of {name} has no series with a valid point")
    kept = [*CONDITION, "series", "system", "granularity", "seeds", "bound", *NUMBERS, *RATIOS]
    return in_drawing_order(frame[kept], list(CONDITION))

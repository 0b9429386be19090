"""What became of a claim, and the rows of a table that a claim is about."""

from dataclasses import dataclass, replace
from enum import StrEnum

import pandas as pd

from figures.claims_file import Claim
from figures.results import MissingInputError
from harness.measurement.uncertainty import Interval


class Outcome(StrEnum):
    """What became of a claim here."""

    REPRODUCED = "reproduced"
    WEAKER = "weaker"  # the same direction, or no direction that the interval settles
    CONTRADICTED = "contradicted"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim's outcome. ours, low, high: our value and its interval, None where there is none.

    simulated: some of the data was. vanished: the table is there, but what the claim needs of it is not.
    """

    claim: Claim
    outcome: Outcome
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    simulated: bool = False
    vanished: bool = False

    def within(self, interval: Interval | None) -> "Finding":
        """The same with its interval, where there is one."""
        return self if interval is None else replace(self, low=interval.low, high=interval.high)

    @property
    def contradicts(self) -> bool:
        """Whether ours says the opposite."""
        return self.outcome is Outcome.CONTRADICTED


def rows_of(claim: Claim, table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The rows of the claim's calibration, protocol and `where`. Raises MissingInputError where none is left."""
    wanted = dict(claim.where)
    if claim.calibration is not None:
        wanted["device"] = claim.calibration
    if claim.load_protocol is not None:
        wanted["protocol"] = claim.load_protocol
    absent = [column for column in wanted if column not in table.columns]
    if absent:
        raise MissingInputError(f"the table of {name} has no column {', '.join(absent)}")
    chosen = table
    for column, value in wanted.items():
        chosen = chosen[chosen[column] == value]
    if chosen.empty:
        named = ", ".join(f"{column} {value}" for column, value in wanted.items())
        raise MissingInputError(f"the table of {name} has no rows of {named or 'any kind'}")
    return chosen


def plain_series(rows: pd.DataFrame, chosen: "pd.Series[bool]", name: str, table: str) -> str:
    """The one series of a system: of several, the one with the shortest name (a variant says what it changed)."""
    found = sorted(set(rows.loc[chosen, "series"].astype(str)), key=len)
    if not found or (len(found) > 1 and len(found[0]) == len(found[1])):
        raise MissingInputError(f"{table} has {len(found)} series of {name}, the claim needs one")
    return found[0]


def is_flowprefill(rows: pd.DataFrame) -> "pd.Series[bool]":
    """FlowPrefill at operator level."""
    return rows["system"].eq("flowprefill") & rows["granularity"].eq("operator")


def is_distserve(rows: pd.DataFrame) -> "pd.Series[bool]":
    """The paper's partner."""
    return rows["system"].eq("distserve")


def is_simulated(rows: pd.DataFrame) -> bool:
    """Whether some of the rows are."""
    return bool(rows["source"].astype(str).str.contains("simulated").any())

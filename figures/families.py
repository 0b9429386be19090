"""Families of series: what stands in one panel where one panel cannot hold them all."""

import re

import pandas as pd

REFERENCE = "reference"
"""The family of those drawn in every panel: DistServe, and FlowPrefill at operator level."""

FLOWPREFILL, OTHERS = "FlowPrefill, where it can stop", "other policies"
MOST_IN_A_PANEL = 9
ORDER = (FLOWPREFILL, "chunked, S-EDF order", "chunked, EDF order", "chunked, FCFS order", "step rules of servers")
POLICY_NAMES = {"s_edf": "S-EDF", "edf": "EDF", "fcfs": "FCFS", "srpt": "SRPT"}
_SERVER_LIKE = re.compile(r"(vllm|sglang|sarathi)", re.IGNORECASE)


def with_family(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The rows with a column `family`: by what the point table says of each series, so a new policy finds its own."""
    facts = table.drop_duplicates("series").set_index("series")
    known = {str(series): _family(str(series), facts.loc[series]) for series in facts.index}
    for reference in (_plainest(facts, "distserve", None), _plainest(facts, "flowprefill", "operator")):
        if reference is not None:
            known[reference] = REFERENCE
    return rows.assign(family=[known.get(series, REFERENCE) for series in rows["series"]])


def in_family_order(families: "pd.Series[str]") -> list[str]:
    """Distinct families but the reference, the project's own first."""
    there = set(families) - {REFERENCE}
    return [name for name in ORDER if name in there] + sorted(there - set(ORDER))


def _family(series: str, facts: pd.Series) -> str:
    system, policy = str(facts.get("system", "")), str(facts.get("policy", ""))
    if _SERVER_LIKE.search(system) or _SERVER_LIKE.search(series):
        return ORDER[-1]
    if system.startswith("flowprefill"):
        return FLOWPREFILL
    if pd.notna(facts.get("chunk_tokens")):
        return f"chunked, {POLICY_NAMES.get(policy, policy)} order"
    return OTHERS


def _plainest(facts: pd.DataFrame, system: str, granularity: str | None) -> str | None:
    """The series of a system with the shortest name: a variant says in its name what it changed."""
    if "system" not in facts or "granularity" not in facts:
        return None
    chosen = facts["system"].eq(system) & (facts["granularity"].eq(granularity) if granularity else True)
    return min(map(str, facts.index[chosen]), key=lambda name: (len(name), name), default=None)

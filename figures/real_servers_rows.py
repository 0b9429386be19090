"""The rows behind the figure of real servers: attainment in both panels, differences, unloaded TTFT, the servers."""

import pandas as pd

from figures.attainment_rows import NEEDED, attainment_rows, in_drawing_order
from figures.results import DamagedTableError, Inputs, MissingInputError, Results

NORMALISED, RAW, DIFFERENCE, UNLOADED, SERVER = "normalised", "raw", "difference", "unloaded", "server"
SHARE = "rate_of_capacity"
POINT_NEEDED = (*NEEDED, "panel", "pilot", SHARE, "chunk_tokens")
DIFFERENCE_NEEDED = (
    "panel", "class", "series", "chunk_tokens", "reference", SHARE, "difference", "difference_low", "difference_high",
    "seeds",
)  # fmt: skip
UNLOADED_NEEDED = ("series", "chunk_tokens", "prompt_tokens", "ttft_s")
SERVER_NEEDED = ("series", "chunk_tokens", "capacity_rps", "slo_speed_factor", "chosen", "not_run")
SHORT = "_short"


def rows(inputs: Inputs) -> pd.DataFrame:
    """Kind "normalised" and "raw": attainment by series, share of capacity and panel (all or a class). "difference":
    the reference's attainment less a series'. "unloaded": TTFT of lone prompts, median and extremes. "server": capacity
    and factor, or why it was not run.

    Of the whole experiment, or of its short form where only that was run. Raises MissingInputError.
    """
    results, experiment = inputs.results, inputs.experiment
    if not results.has(experiment) and results.has(experiment + SHORT):
        experiment += SHORT
    table = results.table(experiment, POINT_NEEDED)
    points = table[~table["pilot"].astype(bool)]
    if points.empty:
        raise MissingInputError(f"the table of {experiment} has pilot points only")
    parts = [_attainment(points[points["panel"] == kind], kind, experiment) for kind in (NORMALISED, RAW)]
    servers = _optional(results, f"{experiment}_servers", SERVER_NEEDED)
    parts += [
        _differences(_optional(results, f"{experiment}_differences", DIFFERENCE_NEEDED)),
        _unloaded(_optional(results, f"{experiment}_ttft", UNLOADED_NEEDED), servers),
        _servers(servers),
    ]
    found = pd.concat([part for part in parts if len(part)], ignore_index=True)
    leading = ["kind", "series", "chunk_tokens"]
    return found[[*leading, *(column for column in found.columns if column not in leading)]]


def _attainment(points: pd.DataFrame, kind: str, experiment: str) -> pd.DataFrame:
    if points.empty:
        return points
    found = attainment_rows(points, SHARE, experiment).assign(kind=kind)
    chunks = points.drop_duplicates("series").set_index("series")["chunk_tokens"]
    return found.assign(chunk_tokens=found["series"].map(chunks))


def _optional(results: Results, name: str, needed: tuple[str, ...]) -> pd.DataFrame:
    try:
        return results.table(name, needed)
    except DamagedTableError:
        raise
    except MissingInputError:  # a run that was stopped early has points only
        return pd.DataFrame()


def _differences(table: pd.DataFrame) -> pd.DataFrame:
    if table.empty:
        return table
    found = table[table["panel"] == NORMALISED].drop(columns="panel").rename(columns={"class": "panel"})
    kept = ["panel", *(column for column in DIFFERENCE_NEEDED if column not in ("panel", "class"))]
    return in_drawing_order(found[kept].assign(kind=DIFFERENCE), ["panel", SHARE])


def _servers(table: pd.DataFrame) -> pd.DataFrame:
    if table.empty:
        return table
    return table[list(SERVER_NEEDED)].assign(kind=SERVER, not_run=table["not_run"].fillna("").astype(str))


def _unloaded(table: pd.DataFrame, servers: pd.DataFrame) -> pd.DataFrame:
    """Of the chunk sizes that were measured further."""
    if table.empty or servers.empty:
        return pd.DataFrame()
    chosen = servers.loc[servers["chosen"].astype(bool), ["series", "chunk_tokens"]]
    kept = table.merge(chosen, on=["series", "chunk_tokens"])  # empty chunk sizes match each other
    found = kept.groupby(["series", "chunk_tokens", "prompt_tokens"], dropna=False)["ttft_s"].agg(
        ttft_s="median", ttft_low_s="min", ttft_high_s="max"
    )
    return in_drawing_order(found.reset_index().assign(kind=UNLOADED), ["prompt_tokens"])

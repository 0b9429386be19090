"""The figure of real servers as Markdown: attainment by class, with differences, and the servers."""

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import pandas as pd

from figures.attainment_rows import ALL
from figures.conditions import in_class_order
from figures.real_servers import TITLE, label_of
from figures.real_servers_rows import DIFFERENCE, NORMALISED, RAW, SERVER, SHARE

Line = Mapping[Hashable, Any]


def text(rows: pd.DataFrame) -> str:
    """A table per panel, one of the differences, and one of the servers."""
    normalised, raw = rows[rows["kind"] == NORMALISED], rows[rows["kind"] == RAW]
    lines = [f"# {TITLE}", "", "Requests that met their TTFT SLO, %, mean over seeds with a 95 % interval.", ""]
    lines += ["At shares of each server's own capacity, SLOs by each server's own speed:", ""]
    lines += [*_attainment(normalised), "", "The same runs, judged by one set of SLOs for all:", "", *_attainment(raw)]
    differences = rows[rows["kind"] == DIFFERENCE]
    if len(differences):
        reference = differences["reference"].iloc[0]
        lines += [
            "",
            f"{reference} less the other, percentage points, paired by seed and trace row, 95 % interval:",
            "",
        ]
        lines += _table(differences, normalised, _difference)
    servers = rows[rows["kind"] == SERVER]
    if len(servers):
        lines += [
            "",
            "| server | chunk | requests/s of a backlog | slo_speed_factor | measured |",
            "|---|---|---|---|---|",
        ]
        lines += [_server(one) for one in servers.to_dict("records")]
    return "\n".join(lines) + "\n"


def _attainment(points: pd.DataFrame) -> list[str]:
    return _table(points, points, _share)


def _table(rows: pd.DataFrame, points: pd.DataFrame, cell: Callable[[Line], str]) -> list[str]:
    panels = [ALL, *in_class_order(set(rows["panel"]) - {ALL})]
    lines = [
        f"| series | share of capacity | {' | '.join(panels)} |",
        f"|---|---|{'---|' * len(panels)}",
    ]
    for (series, share), group in rows.groupby(["series", SHARE], sort=False):
        cells = {str(one["panel"]): cell(one) for one in group.to_dict("records")}
        shown = " | ".join(cells.get(panel, "") for panel in panels)
        lines.append(f"| {label_of(str(series), points)} | {share:g} | {shown} |")
    return lines


def _share(row: Line) -> str:
    invalid = " (invalid)" if row["invalid_seeds"] > 0 else ""
    ends = (row["attainment_low"], row["attainment_high"])
    return f"{100 * row['attainment']:.1f} [{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]{invalid}"


def _difference(row: Line) -> str:
    middle, low, high = (_points(row[name]) for name in ("difference", "difference_low", "difference_high"))
    return f"{middle} [{low}, {high}]" if low else middle


def _points(share: float) -> str:
    """Percentage points with a sign, no -0.0; empty for what is not known."""
    return "" if math.isnan(share) else f"{round(100 * share, 1) + 0.0:+.1f}"


def _server(row: Line) -> str:
    chunk = "" if math.isnan(float(row["chunk_tokens"])) else f"{row['chunk_tokens']:g}"
    if row["not_run"]:
        return f"| {row['series']} | {chunk} |  |  | {row['not_run']} |"
    measured = "yes" if str(row["chosen"]) == "True" else "pilot only"
    return f"| {row['series']} | {chunk} | {row['capacity_rps']:.3g} | {row['slo_speed_factor']:.3g} | {measured} |"

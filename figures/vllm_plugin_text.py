"""The figure of the vLLM plugin as Markdown."""

import math

import pandas as pd

from figures.attainment_rows import ALL
from figures.conditions import in_class_order
from figures.vllm_plugin import TITLE
from figures.vllm_plugin_rows import ATTAINMENT, BLOCKING, KEPT, SHARE, STEP


def text(rows: pd.DataFrame) -> str:
    """A table each: attainment by class, what each addition gains, blocking, throughput."""
    lines = [f"# {TITLE}", "", "Requests that met their TTFT SLO, %, mean over seeds with a 95 % interval."]
    lines += ["Rates are shares of each server's own capacity, SLOs by each server's own speed.", ""]
    lines += _attainment(rows[rows["kind"] == ATTAINMENT])
    steps = rows[rows["kind"] == STEP]
    if len(steps):
        lines += ["", "What each addition gains, percentage points, paired by seed, 95 % interval:", ""]
        lines += ["| addition | share of capacity | gain |", "|---|---|---|"]
        for one in steps.to_dict("records"):
            gain = _ends(one["gain"], one["gain_low"], one["gain_high"], 100, "+.1f")
            lines.append(f"| {one['series']} | {one[SHARE]:g} | {gain} |")
    for kind, head, scale in (
        (BLOCKING, "Mean blocking, ms, of arrivals at random instants of a long prompt", 1e3),
        (KEPT, "Throughput with hooks at operators, % of stock order in the same processes", 100.0),
    ):
        here = rows[rows["kind"] == kind]
        if len(here):
            lines += ["", f"{head}, 95 % interval:", "", "| setting | value | measured |", "|---|---|---|"]
            lines += [
                f"| {one['setting']} | {_ends(one['value'], one['low'], one['high'], scale, '.1f')} | {one['n']:g} |"
                for one in here.to_dict("records")
            ]
    return "\n".join(lines) + "\n"


def _attainment(rows: pd.DataFrame) -> list[str]:
    panels = [ALL, *in_class_order(set(rows["panel"]) - {ALL})]
    lines = [f"| series | share of capacity | {' | '.join(panels)} |", f"|---|---|{'---|' * len(panels)}"]
    for (series, share), group in rows.groupby(["series", SHARE], sort=False):
        cells = {
            str(one["panel"]): _ends(one["attainment"], one["attainment_low"], one["attainment_high"], 100, ".1f")
            + (" (invalid)" if one["invalid_seeds"] > 0 else "")
            for one in group.to_dict("records")
        }
        lines.append(f"| {series} | {share:g} | {' | '.join(cells.get(panel, '') for panel in panels)} |")
    return lines


def _ends(value: float, low: float, high: float, scale: float, form: str) -> str:
    middle = f"{scale * value:{form}}"
    return middle if math.isnan(low) else f"{middle} [{scale * low:{form}}, {scale * high:{form}}]"

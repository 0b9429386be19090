"""A point at a share of a server's capacity, with the SLOs of a server as fast as this one."""

import dataclasses
from collections.abc import Sequence

from engine.core.trace import TraceRow
from harness.assembly.reading import SettingsError
from harness.assembly.requests import LoadedTrace, window_of
from harness.experiments.fingerprint import point_id
from harness.experiments.prepare import Prepared


def placed(base: Prepared, loaded: LoadedTrace, factor: float, rate_rps: float, window_s: float, seed: int) -> Prepared:
    """`base` under another load: so many requests per second for so many seconds, whatever the trace's own rate.

    The window's rows are repeated, in order, or cut short. factor: its SLOs are those of the paper times this.
    Raises SettingsError.
    """
    count = max(2, round(rate_rps * window_s))
    once = dataclasses.replace(base.settings.workload, repeat_to_s=None)
    rows = window_of(dataclasses.replace(base.settings, workload=once), loaded)[0].rows
    period_s = once.window_s if once.window_s is not None else _natural_period_s(rows)
    settings = dataclasses.replace(
        base.settings, workload=dataclasses.replace(once, repeat_to_s=instant_of_row(rows, period_s, count))
    )
    window, _ = window_of(settings, loaded)
    # The last digits are dropped so that the same capacity read from a file gives the same point.
    scale = float(f"{rate_rps * factor * window.span_s / len(window.rows):.9g}")
    load = dataclasses.replace(settings.load, rate_scale=scale, seed=seed)
    settings = dataclasses.replace(settings, load=load)
    given = dataclasses.replace(base.given, slo_speed_factor=factor)
    labels = {**base.labels, "protocol": f"{window_s:g} s of arrivals"}
    return Prepared(settings, point_id(settings, given), given, base.profile, window, labels)


def instant_of_row(rows: Sequence[TraceRow], period_s: float, number: int) -> float:
    """When the row with this number, from 0, arrives in endless repetition: before it there are that many rows."""
    turn, place = divmod(number, len(rows))
    at_s = rows[place].arrival_s + turn * period_s
    if at_s <= 0:
        raise SettingsError("the trace's rows all arrive at once: they cannot be played at a rate")
    return at_s


def _natural_period_s(rows: Sequence[TraceRow]) -> float:
    span_s = rows[-1].arrival_s - rows[0].arrival_s
    return rows[-1].arrival_s + (span_s / (len(rows) - 1) if len(rows) > 1 else 0.0)

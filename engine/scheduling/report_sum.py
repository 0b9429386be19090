"""One report of several schedulers."""

import collections.abc as c
import dataclasses

from engine.core.record import EngineReport


def sum_of_reports(reports: c.Sequence[EngineReport]) -> EngineReport:
    """Counts added, samples joined; of no report, an empty one."""
    total = EngineReport()
    for report in reports:
        total = EngineReport(
            **{
                each.name: getattr(total, each.name) + getattr(report, each.name)
                for each in dataclasses.fields(EngineReport)
            }
        )
    return total

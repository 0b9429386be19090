"""The one rate at which systems are held against each other where a figure has room for one."""

import pandas as pd

from figures.curves import TARGET


def telling_rate(table: pd.DataFrame, series: str) -> float:
    """The highest rate scale at which the mean attainment of `series` is 90 % or more; else its lowest.

    table: points, with series, rate_scale and attainment.
    """
    by_rate = table[table["series"] == series].groupby("rate_scale")["attainment"].mean()
    good = by_rate[by_rate >= TARGET]
    return float(by_rate.index.min() if good.empty else good.index.max())

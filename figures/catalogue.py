"""The figures there are: name -> the rows it draws, and how it draws them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pandas as pd
from matplotlib.figure import Figure

from figures import attainment_vs_rate, blocking_by_granularity, gain_split, max_goodput, slo_scale, ttft_cdf
from figures.results import Inputs


@dataclass(frozen=True, slots=True)
class Drawing:
    """One figure. rows: what it draws, from results; raises MissingInputError. draw: a figure of nothing but them."""

    rows: Callable[[Inputs], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Figure]


DRAWINGS: Mapping[str, Drawing] = MappingProxyType(
    {
        "attainment_vs_rate": Drawing(attainment_vs_rate.rows, attainment_vs_rate.draw),
        "max_goodput": Drawing(max_goodput.rows, max_goodput.draw),
        "ttft_cdf": Drawing(ttft_cdf.rows, ttft_cdf.draw),
        "blocking_by_granularity": Drawing(blocking_by_granularity.rows, blocking_by_granularity.draw),
        "slo_scale": Drawing(slo_scale.rows, slo_scale.draw),
        "gain_split": Drawing(gain_split.rows, gain_split.draw),
    }
)

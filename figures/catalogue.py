"""The figures there are: name -> the rows it draws, how it draws them, and the experiment they come from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import pandas as pd
from matplotlib.figure import Figure

from figures import (
    attainment_vs_rate,
    blocking_by_granularity,
    chunk_tradeoff,
    colocated,
    disaggregation,
    fairness,
    gain_split,
    goodput_steps,
    max_goodput,
    predictor_fit,
    protocols,
    real_servers,
    real_servers_rows,
    real_servers_text,
    rounds,
    settings_sweep,
    slo_scale,
    tensor_parallel,
    ttft_cdf,
    vllm_plugin,
    vllm_plugin_rows,
    vllm_plugin_text,
    workload,
)
from figures.results import Inputs


@dataclass(frozen=True, slots=True)
class Drawing:
    """One figure of one experiment; the same two functions serve a measured and a simulated experiment.

    rows: what it draws, from results; raises MissingInputError. draw: a figure of nothing but them.
    experiment: the table behind it; None = the comparison the user names, or the first of those there are.
    text: the same rows as Markdown, where the figure has that, too.
    """

    rows: Callable[[Inputs], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Figure]
    experiment: str | None = None
    text: Callable[[pd.DataFrame], str] | None = None

    def rows_from(self, inputs: Inputs) -> pd.DataFrame:
        """The rows of this figure's own experiment. Raises MissingInputError."""
        return self.rows(inputs if self.experiment is None else replace(inputs, experiment=self.experiment))

    def text_of(self, rows: pd.DataFrame) -> str | None:
        """The rows as Markdown; None of a figure that has no text."""
        return None if self.text is None else self.text(rows)


DRAWINGS: Mapping[str, Drawing] = MappingProxyType(
    {
        "workload": Drawing(workload.rows, workload.draw, "workload_sample"),
        "attainment_vs_rate": Drawing(attainment_vs_rate.rows, attainment_vs_rate.draw),
        "max_goodput": Drawing(max_goodput.rows, max_goodput.draw),
        "ttft_cdf": Drawing(ttft_cdf.rows, ttft_cdf.draw),
        "blocking_by_granularity": Drawing(blocking_by_granularity.rows, blocking_by_granularity.draw, "granularity"),
        "slo_scale": Drawing(slo_scale.rows, slo_scale.draw, "slo_scale"),
        "fairness": Drawing(fairness.rows, fairness.draw),
        "real_servers": Drawing(real_servers_rows.rows, real_servers.draw, "real_servers", real_servers_text.text),
        "pd": Drawing(disaggregation.rows, disaggregation.draw, "pd_disaggregated"),
        "vllm_plugin": Drawing(vllm_plugin_rows.rows, vllm_plugin.draw, "vllm_plugin", vllm_plugin_text.text),
        "gain_split": Drawing(gain_split.rows, gain_split.draw, "ablation"),
        "sim_attainment_vs_rate": Drawing(attainment_vs_rate.rows, attainment_vs_rate.draw, "sim_goodput_vs_rate"),
        "sim_max_goodput": Drawing(max_goodput.rows, max_goodput.draw, "sim_goodput_vs_rate"),
        "protocols": Drawing(protocols.rows, protocols.draw, "sim_goodput_vs_rate", protocols.text),
        "sim_chunk_tradeoff": Drawing(chunk_tradeoff.rows, chunk_tradeoff.draw, "sim_chunk_tradeoff"),
        "sim_gain_split": Drawing(gain_split.rows, gain_split.draw, "sim_gain_split"),
        "sim_goodput_steps": Drawing(goodput_steps.rows, goodput_steps.draw, "sim_gain_split"),
        "sim_ablation": Drawing(settings_sweep.rows, settings_sweep.draw, "sim_ablation"),
        "sim_predictor_error": Drawing(settings_sweep.rows, settings_sweep.draw, "sim_predictor_error"),
        "sim_predictor_fit": Drawing(predictor_fit.rows, predictor_fit.draw, "predictor_fit"),
        "sim_rounds": Drawing(rounds.rows, rounds.draw, "sim_rounds"),
        "sim_release": Drawing(attainment_vs_rate.rows, attainment_vs_rate.draw, "sim_release"),
        "sim_arrivals": Drawing(max_goodput.rows, max_goodput.draw, "sim_arrivals"),
        "sim_blocking": Drawing(blocking_by_granularity.rows, blocking_by_granularity.draw, "sim_blocking"),
        "sim_slo_scale": Drawing(slo_scale.rows, slo_scale.draw, "sim_slo_scale"),
        "sim_single_slo": Drawing(attainment_vs_rate.rows, attainment_vs_rate.draw, "sim_single_slo"),
        "sim_overload": Drawing(attainment_vs_rate.rows, attainment_vs_rate.draw, "sim_overload"),
        "sim_models": Drawing(attainment_vs_rate.rows, attainment_vs_rate.draw, "sim_models"),
        "sim_models_max_goodput": Drawing(max_goodput.rows, max_goodput.draw, "sim_models"),
        "sim_tp": Drawing(tensor_parallel.rows, tensor_parallel.draw, "sim_tp"),
        "sim_colocated": Drawing(colocated.rows, colocated.draw, "sim_colocated"),
        "sim_pd": Drawing(disaggregation.rows, disaggregation.draw, "sim_pd"),
    }
)

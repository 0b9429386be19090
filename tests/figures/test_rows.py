"""The rows behind each figure, computed by hand."""

import gzip
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from engine.core.record import RequestRecord, Status
from figures import (
    attainment_vs_rate,
    colocated,
    disaggregation,
    gain_split,
    max_goodput,
    predictor_fit,
    slo_scale,
    tensor_parallel,
    ttft_cdf,
)
from figures.attainment_rows import attainment_rows
from figures.conditions import condition_labels, footnote, interval_note
from figures.granularity_rows import granularity_rows
from figures.results import DamagedTableError, Inputs, MissingInputError, Results
from figures.seed_means import share_over_seeds, value_over_seeds
from figures.steadiness import steadiness_rows, steadiness_text
from tests.figures import synthetic_results as made

S = 1_000_000_000


def point(seed: int, attainment: float, **changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "workload": "sample", "protocol": "paper", "model": "m", "device": "d", "source": "measured",
        "length_scale": 0.25, "slo_scale": 1.0, "slo_speed_factor": 3.0, "series": "FlowPrefill (operator)",
        "point": f"p{seed}", "seed": seed, "rate_scale": 2.0, "rate_rps": 1.5, "attainment_n": 100,
        "attainment": attainment, "verdict": "VALID", "n_text": 80, "attainment_text": attainment,
        "n_file": 0, "attainment_file": None,
    }  # fmt: skip
    return {**row, **changes}


def test_mean_over_seeds_with_every_resample_counted() -> None:
    # resamples of two seeds: 0.8 (1/4), 0.9 (1/2), 1.0 (1/4)
    found = share_over_seeds([0.8, 1.0], [10, 1000])
    assert (found.mean, found.low, found.high, found.interval) == (pytest.approx(0.9), 0.8, 1.0, "seeds")


def test_one_seed_has_a_wilson_interval() -> None:
    found = share_over_seeds([0.9], [10])
    assert (found.low, found.high) == (pytest.approx(0.5958, abs=1e-4), pytest.approx(0.9821, abs=1e-4))
    assert found.interval == "wilson"
    assert pd.isna(value_over_seeds([0.9]).low)


def test_attainment_rows_overall_and_by_class() -> None:
    table = pd.DataFrame([point(0, 0.8), point(1, 1.0, attainment_text=0.5, n_file=4, attainment_file=0.75)])
    rows = attainment_rows(table, "rate_scale", "x").set_index("panel")
    assert list(rows.index) == ["all", "file", "text"]
    assert rows.loc["all", ["attainment", "attainment_low", "attainment_high"]].tolist() == pytest.approx(
        [0.9, 0.8, 1.0]
    )
    assert rows.loc["text", "attainment"] == pytest.approx(0.65)
    assert (rows.loc["all", "requests"], rows.loc["text", "requests"], rows.loc["file", "requests"]) == (200, 160, 4)
    # a seed without requests of a class says nothing about it: one seed is left, with its Wilson interval
    assert rows.loc["file", ["attainment", "seeds", "interval"]].tolist() == [0.75, 1, "wilson"]


def test_invalid_points_are_counted_apart() -> None:
    table = pd.DataFrame([point(0, 0.8), point(1, 0.8, verdict="CLIENT-BOUND")])
    rows = attainment_rows(table, "rate_scale", "x")
    assert set(rows["invalid_seeds"]) == {1}
    assert "Hollow" in interval_note(rows)


def test_points_of_different_conditions_are_never_averaged() -> None:
    table = pd.DataFrame([point(0, 0.8), point(0, 0.4, protocol="steady_state"), point(0, 0.2, source="simulated")])
    rows = attainment_rows(table, "rate_scale", "x")
    assert sorted(rows[rows["panel"] == "all"]["attainment"]) == [0.2, 0.4, 0.8]
    assert len(set(condition_labels(rows))) == 3


def test_a_label_leaves_out_what_the_rest_of_it_decides() -> None:
    rows = pd.DataFrame({"model": ["a", "b", "b"], "slo_speed_factor": [0.5, 2.0, 2.0]})
    assert condition_labels(rows).tolist() == ["model a", "model b", "model b"]
    rows["slo_speed_factor"] = [0.5, 2.0, 3.0]
    assert condition_labels(rows).tolist() == [
        "model a, slo_speed_factor 0.5",
        "model b, slo_speed_factor 2",
        "model b, slo_speed_factor 3",
    ]


def test_two_points_of_one_series_rate_and_seed_are_refused() -> None:
    with pytest.raises(MissingInputError, match="several points at rate_scale 2, seed 0"):
        attainment_rows(pd.DataFrame([point(0, 0.8), point(0, 0.4)]), "rate_scale", "x")


def test_footnote_names_model_device_source_factor_and_seeds() -> None:
    rows = attainment_rows(pd.DataFrame([point(0, 0.8), point(1, 0.9)]), "rate_scale", "x")
    assert footnote(rows) == "Model m; device d; measured; SLOs and arrival gaps × 3 (slo_speed_factor); 2 seeds."
    assert "SIMULATED" in footnote(rows.assign(source="simulated"))


def record(task: str, ttft_s: float | None, status: Status = Status.OK, slo_s: int = 2) -> RequestRecord:
    first = None if ttft_s is None else S + round(ttft_s * S)
    return RequestRecord("r", task, 10, 1, slo_s * S, None, S, S + 5, first, status=status)


def test_ttft_curve_keeps_misses_in_the_denominator() -> None:
    records = [record("a", 2.0), record("a", 1.0), record("a", None, Status.FAILED), record("a", 0.5, Status.TRUNCATED)]
    found = ttft_cdf.curve(records)
    assert [(p["ttft_s"], p["share"], p["requests"], p["ttft_slo_s"]) for p in found] == [
        (1, 0.25, 4, 2),
        (2, 0.5, 4, 2),
    ]


def test_ttft_curve_of_many_requests_keeps_its_ends() -> None:
    found = ttft_cdf.curve([record("a", (i + 1) / 1000) for i in range(1000)])
    assert len(found) == ttft_cdf.POINTS_PER_CURVE
    assert (found[0]["ttft_s"], found[-1]["ttft_s"], found[-1]["share"]) == (0.001, 1.0, 1.0)


def test_ttft_curve_without_any_answer_is_flat_at_zero() -> None:
    found = ttft_cdf.curve([record("a", None, Status.FAILED), record("a", None, Status.UNSENT)])
    assert [(p["share"], p["requests"]) for p in found] == [(0.0, 2)]
    assert pd.isna(found[0]["ttft_s"])


def test_ttft_rate_is_the_highest_that_most_series_have() -> None:
    table = pd.DataFrame({"series": ["a", "a", "a", "b", "b"], "rate_scale": [1, 2, 4, 1, 2]})
    assert ttft_cdf.chosen_rate(table) == 2


def test_ttft_rows_pool_seeds_and_need_the_raw_records(tmp_path: Path) -> None:
    points = [(made.at(made.FACTS, seed=seed, rate_scale=2.0), 4.0) for seed in (0, 1)]
    made.write_points_of(tmp_path, points, requests=30)
    rows = ttft_cdf.rows(Inputs(Results(tmp_path), "goodput_vs_rate"))
    last = rows.groupby("panel")["requests"].first()
    assert last.sum() == 60
    assert set(rows["seeds"]) == {2}
    with pytest.raises(MissingInputError, match="no point at rate_scale 3"):
        ttft_cdf.rows(Inputs(Results(tmp_path), "goodput_vs_rate", rate_scale=3.0))
    folder = next((tmp_path / "raw" / "goodput_vs_rate").iterdir())
    (folder / "records.csv.gz").write_bytes(b"")
    with pytest.raises(MissingInputError, match="damaged"):
        ttft_cdf.rows(Inputs(Results(tmp_path), "goodput_vs_rate"))


def test_granularity_rows_in_order_with_throughput_over_none(tmp_path: Path) -> None:
    made.write_granularity(tmp_path)
    rows = granularity_rows(Results(tmp_path), "granularity")
    assert rows["setting"].tolist() == [
        "none", "layer", "half_layer", "operator", "tile", "chunk 256", "chunk 512", "chunk 1024", "chunk 2048",
    ]  # fmt: skip
    operator = rows[rows["setting"] == "operator"].iloc[0]
    assert operator["throughput_relative"] == pytest.approx(0.996)
    assert operator["blocking_expected_mean_ms"] == pytest.approx(8.1)


@pytest.mark.parametrize("column", ["blocking_predicted_mean_ms", "blocking_expected_mean_ms"])
def test_granularity_reads_the_prediction_under_either_name(tmp_path: Path, column: str) -> None:
    made.write_granularity(tmp_path, predicted=column)
    assert granularity_rows(Results(tmp_path), "granularity")["blocking_expected_mean_ms"].notna().all()


def test_granularity_without_a_prediction_says_so(tmp_path: Path) -> None:
    made.write_granularity(tmp_path, predicted="something_else")
    with pytest.raises(MissingInputError, match="no column blocking_"):
        granularity_rows(Results(tmp_path), "granularity")


def test_gain_split_steps_are_paired_by_seed(tmp_path: Path) -> None:
    shares = {
        ("fcfs", "none", "none"): (0.2, 0.4),
        ("s_edf", "none", "none"): (0.5, 0.6),
        ("s_edf", "operator", "none"): (0.8, 0.9),
        ("s_edf", "operator", "slo_aware"): (0.9, 0.9),
    }
    table = pd.DataFrame(
        [
            point(
                seed, share, policy=policy, granularity=granularity, batching=batching, point=f"{policy}{seed}{share}"
            )
            for (policy, granularity, batching), by_seed in shares.items()
            for seed, share in enumerate(by_seed)
        ]
    )
    (tmp_path / "tables").mkdir()
    table.to_csv(tmp_path / "tables" / "ablation.csv", index=False)
    rows = gain_split.rows(Inputs(Results(tmp_path), "ablation"))
    steps = rows[rows["kind"] == "step"].reset_index(drop=True)
    assert steps["attainment"].tolist() == pytest.approx([0.3, 0.55, 0.85, 0.9])
    assert steps["gain"].tolist()[1:] == pytest.approx([0.25, 0.3, 0.05])
    assert (steps["gain_low"][1], steps["gain_high"][1]) == (pytest.approx(0.2), pytest.approx(0.3))
    assert len(rows[rows["kind"] == "cell"]) == 4
    table[table["granularity"] != "operator"].to_csv(tmp_path / "tables" / "ablation.csv", index=False)
    with pytest.raises(MissingInputError, match=r"\+ operator checks"):
        gain_split.rows(Inputs(Results(tmp_path), "ablation"))


def test_max_goodput_keeps_bounds_apart_from_numbers(tmp_path: Path) -> None:
    made.write_comparison(tmp_path, rates=(0.5, 1, 2, 3), seeds=2, requests=60)
    rows = max_goodput.rows(Inputs(Results(tmp_path), "goodput_vs_rate")).set_index("series")
    assert rows.loc["DistServe (FCFS)", "bound"] == ""
    assert rows.loc["FlowPrefill (operator)", ["bound", "max_goodput_rate_scale"]].tolist() == ["above_highest", 3.0]
    curves = attainment_vs_rate.rows(Inputs(Results(tmp_path), "goodput_vs_rate"))
    marked = curves[curves["kind"] == "max_goodput"]
    assert "FlowPrefill (operator)" not in set(marked["series"])
    assert "DistServe (FCFS)" in set(marked["series"])


def test_other_workloads_stand_beside_the_headline_only(tmp_path: Path) -> None:
    for experiment, workload in (("goodput_vs_rate", "sample"), ("reproduce", "sample"), ("mooncake", "mooncake")):
        made.write_comparison(tmp_path, experiment, workload, rates=(1, 2), seeds=1, requests=20)
    assert set(max_goodput.rows(Inputs(Results(tmp_path), "goodput_vs_rate"))["workload"]) == {"sample", "mooncake"}
    assert set(max_goodput.rows(Inputs(Results(tmp_path), "reproduce"))["workload"]) == {"sample"}


def test_slo_scale_rows_are_one_per_scale(tmp_path: Path) -> None:
    points = [(made.at(made.FACTS, experiment="slo_scale", slo_scale=x, rate_scale=2.0), 4.0) for x in (0.4, 2.0)]
    made.write_points_of(tmp_path, points, requests=30, raw=False)
    rows = slo_scale.rows(Inputs(Results(tmp_path), "slo_scale"))
    assert rows[rows["panel"] == "all"]["slo_scale"].tolist() == [0.4, 2.0]


@pytest.mark.parametrize(
    ("text", "says"), [("", "cannot be read"), ("series,seed\n", "has no column rate_scale"), ("a\n\xff", "no column")]
)
def test_a_table_that_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "smoke.csv").write_text(text)
    with pytest.raises(MissingInputError, match=says):
        attainment_vs_rate.rows(Inputs(Results(tmp_path), "smoke"))


@pytest.mark.parametrize("content", [b"series,seed\n", b"", gzip.compress(b"series,seed\n" * 99, mtime=0)[:-8]])
def test_a_packed_table_that_cannot_be_unpacked_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "smoke.csv.gz").write_bytes(content)
    with pytest.raises(DamagedTableError, match="cannot be read"):
        attainment_vs_rate.rows(Inputs(Results(tmp_path), "smoke"))


def test_tensor_parallel_rows_are_told_apart_by_their_ranks(tmp_path: Path) -> None:
    made.write_tensor_parallel(tmp_path)
    found = tensor_parallel.rows(Inputs(Results(tmp_path), "sim_tp"))
    goodput = found[found["kind"] == "goodput"]
    assert set(zip(goodput["base"], goodput["ranks"], strict=True)) == {
        (base, ranks) for base in ("FlowPrefill (operator)", made.DISTSERVE) for ranks in (1, 2, 4)
    }
    made.write_simulated_comparison(tmp_path, "plain", seeds=1, requests=5)
    with pytest.raises(MissingInputError, match="named after its ranks"):
        tensor_parallel.rows(Inputs(Results(tmp_path), "plain"))


def test_colocated_rows_have_both_attainments(tmp_path: Path) -> None:
    made.write_colocated(tmp_path)
    found = colocated.rows(Inputs(Results(tmp_path), "sim_colocated"))
    by_metric = found.pivot_table(index=["series", "rate_scale"], columns="metric", values="attainment")
    assert (by_metric["attainment_joint"] - by_metric["attainment"] / 2).abs().max() < 1e-9
    made.write_simulated_comparison(tmp_path, "no_decode", seeds=1, requests=5)
    with pytest.raises(MissingInputError, match="nothing was decoded"):
        colocated.rows(Inputs(Results(tmp_path), "no_decode"))


def test_disaggregated_rows_are_at_rates_per_accelerator(tmp_path: Path) -> None:
    made.write_disaggregated(tmp_path)
    inputs = Inputs(Results(tmp_path), "sim_pd")
    table, found = inputs.results.table("sim_pd", ()), disaggregation.rows(inputs)
    for series, shares in (("FlowPrefill (1P1D)", 2), ("FlowPrefill (operator)", 1)):
        tried = sorted(set(table[table["series"] == series]["rate_scale"]))
        drawn = sorted(set(found[found["series"] == series][disaggregation.X]))
        assert drawn == [rate / shares for rate in tried]
    by_metric = found.pivot_table(index=["series", disaggregation.X], columns="metric", values="attainment")
    assert (by_metric["attainment_joint"] - by_metric["tbt_attainment"] / 2).abs().max() < 1e-9
    assert [disaggregation.accelerators(name) for name in ("flowprefill", "x_2p1d", "flowprefill_10p4d")] == [1, 3, 14]
    made.write_simulated_comparison(tmp_path, "no_decode", seeds=1, requests=5)
    with pytest.raises(MissingInputError):
        disaggregation.rows(Inputs(Results(tmp_path), "no_decode"))


def test_predictor_fit_leaves_out_later_chunks_and_what_was_not_predicted(tmp_path: Path) -> None:
    made.write_predictor_fit(tmp_path)
    found = predictor_fit.rows(Inputs(Results(tmp_path), "predictor_fit"))
    assert list(zip(found["predictor"], found["new_tokens"], strict=True)) == [
        ("operator_sum", 64), ("operator_sum", 512), ("polynomial", 8), ("polynomial", 64), ("polynomial", 512),
    ]  # fmt: skip


def test_a_class_called_none_is_not_a_gap(tmp_path: Path) -> None:
    made.write_points_of(tmp_path, [(replace(made.FACTS, granularity="none", rate_scale=2.0), 4.0)], requests=5)
    assert Results(tmp_path).table("goodput_vs_rate")["granularity"].tolist() == ["none"]


def test_a_series_without_a_valid_point_has_no_bar_but_keeps_its_curve(tmp_path: Path) -> None:
    lost = [(made.at(made.FACTS, series="Broken", rate_scale=float(rate)), 4.0) for rate in (1, 2)]
    kept = [(made.at(made.FACTS, rate_scale=float(rate)), 4.0) for rate in (1, 2)]
    made.write_points_of(tmp_path, lost + kept, 20, invalid=[f"Broken-slo_aware-{rate}-1-0" for rate in (1, 2)])
    inputs = Inputs(Results(tmp_path), "goodput_vs_rate")
    assert set(max_goodput.rows(inputs)["series"]) == {"FlowPrefill (operator)"}
    assert set(attainment_vs_rate.rows(inputs)["series"]) == {"Broken", "FlowPrefill (operator)"}


def test_steadiness_is_the_paired_change_at_the_max_goodput(tmp_path: Path) -> None:
    facts = {"protocol": "steady_state", "source": "simulated"}
    (tmp_path / "tables").mkdir()
    for name, loss in (("sim_steady_state", 0.0), ("sim_steady_state_doubled", 0.004)):
        rows = [
            point(seed, share - loss, rate_scale=rate, **facts)
            for seed in (0, 1)
            for rate, share in ((2, 1.0), (3, 0.8))
        ]
        pd.DataFrame(rows).to_csv(tmp_path / "tables" / f"{name}.csv", index=False)
    goodput = pd.DataFrame([{**point(0, 0.9), **facts, "bound": "", "max_goodput_rate_scale": 2.5}])
    found = steadiness_rows(Results(tmp_path), goodput)
    assert found[["attainment_once", "attainment_doubled", "change_points"]].iloc[0].tolist() == pytest.approx(
        [0.9, 0.896, -0.4]
    )
    assert steadiness_text(found)[-1].endswith("| yes |")
    (tmp_path / "tables" / "sim_steady_state_doubled.csv").unlink()
    assert steadiness_rows(Results(tmp_path), goodput).empty

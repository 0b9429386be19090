"""Every outcome of every claim, from small tables."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from figures.check_claims import main
from figures.claim_findings import Finding, Outcome
from figures.claim_outcomes import judge_claim
from figures.claims_file import Claim, ClaimsFileError, read_claims
from figures.results import Results
from tests.figures import synthetic_results as made

CLAIMS = {claim.id: claim for claim in read_claims()}
POINTS = "goodput_vs_rate"


def goodput(
    root: Path, ratio: float | None, low: float | None, high: float | None, bound: str = "", **changes: object
) -> Results:
    """A max goodput table whose FlowPrefill row holds this ratio to DistServe."""
    shared = {
        "workload": "sample", "protocol": "paper", "model": "m", "device": "d", "source": "measured",
        "length_scale": 0.25, "slo_scale": 1.0, "slo_speed_factor": 3.0, "seeds": 5, "max_goodput_bound": "",
        **{f"max_goodput_{end}{unit}": 2.0 for end in ("", "low_", "high_") for unit in ("rps", "rate_scale")},
    }  # fmt: skip
    flow = {
        **shared, "series": "FlowPrefill (operator)", "system": "flowprefill", "granularity": "operator",
        "reference": "DistServe (FCFS)", "ratio": ratio, "ratio_low": low, "ratio_high": high, "ratio_bound": bound,
        "ratio_seeds": 5, **changes,
    }  # fmt: skip
    rival = {**shared, "series": "DistServe (FCFS)", "system": "distserve", "granularity": "none"}
    (root / "tables").mkdir(parents=True, exist_ok=True)
    pd.DataFrame([flow, rival]).to_csv(root / "tables" / f"{POINTS}_max_goodput.csv", index=False)
    decisions(root, rounds=190)
    return Results(root)


def decisions(root: Path, rounds: int, chunked: int | None = 700) -> Results:
    """A point table of 100 requests due, 95 of them completed, by each system."""
    row = {
        "system": "flowprefill", "granularity": "operator", "seed": 0, "decisions": rounds, "requests_due": 100,
        "requests_ok": 95, "verdict": "VALID", "source": "measured",
    }  # fmt: skip
    rows = [row] if chunked is None else [row, {**row, "system": "chunked_prefill", "decisions": chunked}]
    (root / "tables").mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(root / "tables" / f"{POINTS}.csv", index=False)
    return Results(root)


def granularity(root: Path, **blocking_and_speed: tuple[float, float]) -> Results:
    """The usual granularity table with other mean blocking (ms) and tokens/s for some settings."""
    settings = dict(made.GRANULARITY)
    for name, (mean, speed) in blocking_and_speed.items():
        key = ("none", int(name.removeprefix("chunk_"))) if name.startswith("chunk_") else (name, None)
        settings[key] = (mean, *settings[key][1:5], speed)
    made.write_granularity(root, settings)
    return Results(root)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "bound", "outcome"),
    [
        (5.1, 4.0, 6.0, "", Outcome.REPRODUCED),  # 5.6 less 10 % is 5.04
        (5.0, 4.0, 6.0, "", Outcome.WEAKER),
        (2.5, 0.9, 3.0, "", Outcome.WEAKER),
        (0.8, 0.6, 1.1, "", Outcome.WEAKER),  # the interval does not settle it
        (0.8, 0.6, 0.9, "", Outcome.CONTRADICTED),
        (0.8, None, None, "", Outcome.CONTRADICTED),
        (2.5, None, None, "", Outcome.WEAKER),
        (5.2, 5.0, float("inf"), "at_least", Outcome.REPRODUCED),
        (0.8, 0.7, float("inf"), "at_least", Outcome.WEAKER),
        (6.0, 0.0, 7.0, "at_most", Outcome.WEAKER),
        (0.9, 0.0, 0.95, "at_most", Outcome.CONTRADICTED),
    ],
)
def test_c1(tmp_path: Path, ratio: float, low: float | None, high: float | None, bound: str, outcome: Outcome) -> None:
    found = judge_claim(goodput(tmp_path, ratio, low, high, bound), CLAIMS["C1"])
    assert (found.outcome, found.ours, found.vanished) == (outcome, ratio, False)


def test_c1_says_when_the_direction_is_not_settled(tmp_path: Path) -> None:
    found = judge_claim(goodput(tmp_path, 2.5, 0.9, 3.0), CLAIMS["C1"])
    assert "not settled" in found.note
    assert "not settled" not in judge_claim(goodput(tmp_path, 2.5, 1.9, 3.0), CLAIMS["C1"]).note


def test_c1_that_nothing_bounds_is_not_run(tmp_path: Path) -> None:
    found = judge_claim(goodput(tmp_path, None, None, None, "unknown"), CLAIMS["C1"])
    assert (found.outcome, found.vanished) == (Outcome.NOT_RUN, False)


def test_c1_takes_the_plain_system_and_not_its_variants(tmp_path: Path) -> None:
    results = goodput(tmp_path, 3.0, 2.0, 4.0)
    path = tmp_path / "tables" / f"{POINTS}_max_goodput.csv"
    frame = pd.read_csv(path, keep_default_na=False)
    variant = frame.iloc[[0]].assign(series="FlowPrefill (operator), alpha=0.5", ratio=9.0)
    pd.concat([variant, frame]).to_csv(path, index=False)
    assert judge_claim(results, CLAIMS["C1"]).ours == 3.0


def test_c1_marks_simulated_data(tmp_path: Path) -> None:
    assert judge_claim(goodput(tmp_path, 3.0, 2.0, 4.0, source="simulated"), CLAIMS["C1"]).simulated


def test_c1_from_the_tables_the_harness_writes(tmp_path: Path) -> None:
    made.write_comparison(tmp_path, rates=(0.5, 1, 2, 3, 4, 6), seeds=2, requests=100)
    found = judge_claim(Results(tmp_path), CLAIMS["C1"])
    assert found.outcome is Outcome.WEAKER
    assert found.ours is not None
    assert 2 < found.ours < 5
    assert "at tile level" in found.note


@pytest.mark.parametrize(
    ("layer_ms", "outcome"),
    [(27.1, Outcome.REPRODUCED), (26.9, Outcome.WEAKER), (8.7, Outcome.WEAKER), (8.6, Outcome.CONTRADICTED)],
)
def test_c2(tmp_path: Path, layer_ms: float, outcome: Outcome) -> None:
    # operator level blocks 8.6 ms; 3.5 less 10 % is 3.15, times 8.6 is 27.09
    found = judge_claim(granularity(tmp_path, layer=(layer_ms, 999.0)), CLAIMS["C2"])
    assert found.outcome is outcome
    assert found.ours == pytest.approx(layer_ms / 8.6)
    assert "predicted ratio 3.64" in found.note  # 29.5 / 8.1


@pytest.mark.parametrize(
    ("settings", "outcome"),
    [
        ({}, Outcome.REPRODUCED),
        ({"chunk_256": (7.9, 985.0)}, Outcome.WEAKER),  # no slower than the largest, within 2 %
        ({"chunk_256": (7.9, 1100.0)}, Outcome.CONTRADICTED),  # faster than the largest
        ({"chunk_256": (90.0, 930.0)}, Outcome.CONTRADICTED),  # blocks longer than the largest
        ({"operator": (8.6, 900.0)}, Outcome.CONTRADICTED),  # checks cost throughput
        ({"operator": (71.0, 996.0)}, Outcome.WEAKER),  # no better than the largest chunk
    ],
)
def test_c3(tmp_path: Path, settings: dict[str, tuple[float, float]], outcome: Outcome) -> None:
    assert judge_claim(granularity(tmp_path, **settings), CLAIMS["C3"]).outcome is outcome


@pytest.mark.parametrize(
    ("rounds", "chunked", "outcome"),
    [
        (195, 700, Outcome.REPRODUCED),  # 100 arrivals and 95 completions
        (196, 700, Outcome.WEAKER),
        (196, None, Outcome.CONTRADICTED),
        (800, 700, Outcome.CONTRADICTED),
    ],
)
def test_c4(tmp_path: Path, rounds: int, chunked: int | None, outcome: Outcome) -> None:
    found = judge_claim(decisions(tmp_path, rounds, chunked), CLAIMS["C4"])
    assert found.outcome is outcome
    assert found.ours == pytest.approx(rounds / 195)


def test_c4_has_an_interval_over_seeds(tmp_path: Path) -> None:
    results = decisions(tmp_path, 180)
    table = results.table(POINTS)
    by_seed = [table.assign(seed=seed, decisions=rounds) for seed, rounds in enumerate((150, 180, 195))]
    pd.concat(by_seed).to_csv(tmp_path / "tables" / f"{POINTS}.csv", index=False)
    found = judge_claim(Results(tmp_path), CLAIMS["C4"])
    assert found.ours == pytest.approx((150 + 180 + 195) / (3 * 195))
    assert found.low is not None
    assert found.high is not None
    assert 150 / 195 <= found.low < found.ours < found.high <= 1.0


def test_c4_leaves_invalid_points_out(tmp_path: Path) -> None:
    results = decisions(tmp_path, 900, None)
    table = results.table(POINTS)
    pd.concat([table.assign(verdict="CLIENT-BOUND"), table.assign(decisions=100)]).to_csv(
        tmp_path / "tables" / f"{POINTS}.csv", index=False
    )
    assert judge_claim(results, CLAIMS["C4"]).ours == pytest.approx(100 / 195)


def test_c5_is_not_run(tmp_path: Path) -> None:
    assert judge_claim(granularity(tmp_path), CLAIMS["C5"]).outcome is Outcome.NOT_RUN


@pytest.mark.parametrize("claim", ["C1", "C2", "C3", "C4"])
def test_without_a_table_a_claim_is_not_run(tmp_path: Path, claim: str) -> None:
    found = judge_claim(Results(tmp_path), CLAIMS[claim])
    assert (found.outcome, found.vanished) == (Outcome.NOT_RUN, False)


def vanished(root: Path, claim: str, drop: str) -> Finding:
    """The finding once the rows that name `drop` are gone from the claim's tables."""
    goodput(root, 3.0, 2.0, 4.0)
    granularity(root)
    for path in (root / "tables").iterdir():
        frame = pd.read_csv(path, keep_default_na=False)
        named = frame.astype(str).eq(drop).any(axis=1)
        frame[~named].to_csv(path, index=False)
    return judge_claim(Results(root), CLAIMS[claim])


@pytest.mark.parametrize(
    ("claim", "drop"), [("C1", "distserve"), ("C2", "layer"), ("C3", "operator"), ("C4", "flowprefill")]
)
def test_rows_that_vanished_from_a_table_are_told_from_a_missing_table(tmp_path: Path, claim: str, drop: str) -> None:
    found = vanished(tmp_path, claim, drop)
    assert (found.outcome, found.vanished) == (Outcome.NOT_RUN, True)


def test_the_report_and_its_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--results", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    goodput(tmp_path, 3.0, 2.0, float("inf"))
    granularity(tmp_path)
    assert main(arguments) == 0
    text = (tmp_path / "out" / "claims.md").read_text()
    assert "| 5.6x | 3x [2, unbounded] | weaker |" in text
    claims = {entry["id"]: entry for entry in json.loads((tmp_path / "out" / "claims.json").read_text())["claims"]}
    assert [claims[name]["outcome"] for name in ("C1", "C2", "C3", "C4", "C5")] == [
        "weaker", "reproduced", "reproduced", "reproduced", "not_run",
    ]  # fmt: skip
    assert (claims["C1"]["ours"], claims["C1"]["ours_high"]) == (3.0, "unbounded")
    assert claims["C2"]["paper_value"] == [3.5, 4.2]
    granularity(tmp_path, layer=(5.0, 999.0))
    assert main(arguments) == 1
    granularity(tmp_path)
    (tmp_path / "tables" / f"{POINTS}_max_goodput.csv").unlink()
    assert main(arguments) == 1
    assert "C1: not_run" in capsys.readouterr().out


def test_a_contradiction_whose_cause_is_written_down_is_shown_and_does_not_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    granularity(tmp_path, layer=(5.0, 999.0))
    claim = replace(CLAIMS["C2"], known_contradiction="Because.")
    for known, status in ((claim, 0), (CLAIMS["C2"], 1)):
        monkeypatch.setattr("figures.claims_file.read_claims", lambda known=known: (known,))
        assert main(["--results", str(tmp_path), "--out", str(tmp_path / "out")]) == status
        assert "C2: contradicted" in capsys.readouterr().out
        assert ("Known: Because." in (tmp_path / "out" / "claims.md").read_text()) is (status == 0)


def test_claims_file_mistakes_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text("claims:\n  - id: C9\n")
    with pytest.raises(ClaimsFileError, match="claim C9 lacks statement, value"):
        read_claims(path)
    with pytest.raises(ClaimsFileError, match="cannot be read"):
        read_claims(tmp_path / "none.yaml")


def test_value_texts() -> None:
    claim: Claim = CLAIMS["C2"]
    assert (claim.value_text, claim.threshold, CLAIMS["C3"].value_text) == ("3.5-4.2x", 3.5, "")
    assert replace(claim, value=5.6).value_text == "5.6x"


def test_no_results_or_nowhere_to_write_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--results", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"there is no results folder {tmp_path / 'none'}\n"
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    assert main(["--results", str(tmp_path), "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith(f"cannot write the report to {tmp_path / 'file'}: ")


def test_a_cell_that_is_no_number_is_told_and_counts_as_vanished(tmp_path: Path) -> None:
    results = goodput(tmp_path, 4.0, 3.0, 5.0)
    path = tmp_path / "tables" / f"{POINTS}_max_goodput.csv"
    path.write_text(path.read_text().replace("4.0,3.0,5.0", "zz,3.0,5.0"))
    found = judge_claim(results, CLAIMS["C1"])
    assert found.vanished
    assert "line 2: ratio must be a number, got 'zz'" in found.note

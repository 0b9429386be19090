"""The figure of the vLLM plugin: what order and granularity give, and what the bench adds."""

from pathlib import Path

import pandas as pd
import pytest

from figures import vllm_plugin, vllm_plugin_text
from figures.figure_files import rows_as_written
from figures.results import Inputs, Results
from figures.vllm_plugin_rows import ATTAINMENT, BLOCKING, KEPT, SHARE, STEP, rows
from harness.measurement.table_file import read_table, write_table
from tests.figures.synthetic_servers import write_plugin


def rows_of(root: Path) -> pd.DataFrame:
    return rows_as_written(rows(Inputs(Results(root), "vllm_plugin")))


def test_an_addition_gains_what_the_seeds_differ_by(tmp_path: Path) -> None:
    write_plugin(tmp_path, seeds=2, requests=40)
    found = rows_of(tmp_path)
    points = pd.DataFrame(read_table(tmp_path / "tables" / "vllm_plugin.csv"))
    points = points[(points["panel"] == "normalised") & (points[SHARE].astype(float) == 1.0)]
    by_series = points.assign(attainment=points["attainment"].astype(float)).groupby("series")["attainment"].mean()
    steps = found[(found["kind"] == STEP) & (found[SHARE] == 1.0)].set_index("series")
    gain = by_series["vLLM + S-EDF (chunk)"] - by_series["vLLM (FCFS)"]
    assert steps.loc["S-EDF between steps", "gain"] == pytest.approx(gain, abs=1e-6)
    assert steps.loc["S-EDF between steps", "seeds"] == 2
    assert list(found[found["kind"] == BLOCKING]["setting"]) == ["chunk", "layer", "half_layer", "operator"]
    assert list(found[found["kind"] == KEPT]["setting"]) == ["prefill 512", "decode 256"]
    text = vllm_plugin_text.text(found)
    assert f"| S-EDF between steps | 1 | {100 * gain:+.1f} [" in text
    assert "| half_layer | 50.0 [45.0, 55.0] | 40 |" in text
    assert "(invalid)" in text


def test_without_the_bench_its_panels_say_so(tmp_path: Path) -> None:
    write_plugin(tmp_path, seeds=1, requests=20)
    (tmp_path / "tables" / "vllm_plugin_bench.csv").unlink()
    found = rows_of(tmp_path)
    assert set(found["kind"]) == {ATTAINMENT, STEP}
    words = [text.get_text() for axes in vllm_plugin.draw(found).axes for text in axes.texts]
    assert words.count("not measured") == 2
    assert "Mean blocking" not in vllm_plugin_text.text(found)


def test_a_system_that_was_not_run_leaves_its_steps_out(tmp_path: Path) -> None:
    write_plugin(tmp_path, seeds=2, requests=20)
    path = tmp_path / "tables" / "vllm_plugin.csv"
    write_table(path, [row for row in read_table(path) if row["series"] != "vLLM + FlowPrefill (layer)"])
    steps = rows_of(tmp_path).query("kind == 'step'")
    assert set(steps["series"]) == {"S-EDF between steps", "S-EDF against priority by class"}

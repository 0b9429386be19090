"""The figure of real servers: what enters it, what is kept out, and what it says of both."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.collections import PathCollection

from figures import real_servers, real_servers_text
from figures.attainment_rows import ALL
from figures.figure_files import rows_as_written
from figures.real_servers_rows import DIFFERENCE, NORMALISED, RAW, SERVER, UNLOADED, rows
from figures.results import DamagedTableError, Inputs, MissingInputError, Results
from harness.measurement.table_file import read_table, write_table
from tests.figures.synthetic_servers import SERVERS, write_real_servers


def rows_of(root: Path) -> pd.DataFrame:
    return rows_as_written(rows(Inputs(Results(root), "real_servers")))


def test_each_panel_has_its_points_and_pilots_are_in_none(tmp_path: Path) -> None:
    write_real_servers(tmp_path, shares=(0.6, 1.0), requests=40)
    found = rows_of(tmp_path)
    for kind in (NORMALISED, RAW):
        panel = found[(found["kind"] == kind) & (found["panel"] == ALL)]
        assert len(panel) == len(SERVERS) * 2, "no pilot at 0.8"
        assert set(panel["seeds"]) == {3}
    raw = found[(found["kind"] == RAW) & (found["panel"] == ALL)].set_index(["series", "rate_of_capacity"])
    assert raw.loc[("vLLM (FCFS)", 0.6), "rate_rps"] == pytest.approx(9.0)
    assert set(raw["slo_speed_factor"]) == {0.5}
    lone = found[found["kind"] == UNLOADED].groupby("series")["chunk_tokens"].first()
    assert lone["SGLang (priority)"] == 8192, "only the chunk size that was chosen"
    first = found[(found["kind"] == UNLOADED) & (found["series"] == "vLLM (FCFS)")].iloc[0]
    # 2 ms and 0.15 ms a token: 4.4 ms, then 10 and 20 % more
    assert first[["prompt_tokens", "ttft_low_s", "ttft_s", "ttft_high_s"]].tolist() == pytest.approx(
        [16, 0.0044, 0.00484, 0.00528]
    )


def test_it_says_which_points_are_invalid_and_which_server_was_not_run(tmp_path: Path) -> None:
    write_real_servers(tmp_path, requests=40)
    found = rows_of(tmp_path)
    figure = real_servers.draw(found)
    note = figure.get_supxlabel().replace("\n", " ")
    assert "Hollow: measurement judged invalid." in note
    assert "SGLang (FCFS): not run: there is no .venv-sglang" in note
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "vLLM (FCFS), chunk 2048 (1 = 15/s)" in labels
    assert "FlowPrefill (operator) (1 = 22/s)" in labels
    hollow = [
        marks
        for marks in figure.axes[0].collections
        if isinstance(marks, PathCollection) and (marks.get_facecolors()[:, :3] == 1).all()
    ]
    assert [len(marks.get_offsets()) for marks in hollow] == [1]
    text = real_servers_text.text(found)
    assert "(invalid) |" in text
    assert "| SGLang (FCFS) | 2048 |  |  | not run:" in text
    assert "| SGLang (priority) | 2048 | 11 | 1.05 | pilot only |" in text
    assert "| vLLM (priority), chunk 2048 | 0.8 | +12.0 [+6.0, +17.0] |" in text


def test_a_difference_of_nothing_has_no_minus(tmp_path: Path) -> None:
    write_real_servers(tmp_path, shares=(0.8,), seeds=1, requests=20)
    path = tmp_path / "tables" / "real_servers_differences.csv"
    rows_there = [row for row in read_table(path) if row["series"] == "DistServe (FCFS)"]
    unknown = {"difference_low": "", "difference_high": ""}
    nothing = {"difference": "-0.0001", "difference_low": "-0.0002", "difference_high": "0"}
    write_table(path, [{**row, **(unknown if row["class"] == "text" else nothing)} for row in rows_there])
    text = real_servers_text.text(rows_of(tmp_path))
    assert "| DistServe (FCFS) | 0.8 | +0.0 [+0.0, +0.0] | +52.0 | +0.0" in text


def test_a_run_that_was_stopped_early_is_drawn_as_far_as_it_went(tmp_path: Path) -> None:
    write_real_servers(tmp_path, shares=(0.8,), seeds=1, requests=30)
    for name in ("servers", "ttft", "differences"):
        (tmp_path / "tables" / f"real_servers_{name}.csv").unlink()
    found = rows_of(tmp_path)
    assert set(found["kind"]) == {NORMALISED, RAW}
    words = [text.get_text() for axes in real_servers.draw(found).axes for text in axes.texts]
    assert words.count("not measured") == 2
    assert "| FlowPrefill (operator) | 0.8 |" in real_servers_text.text(found)


def test_the_short_form_stands_in_where_only_it_was_run(tmp_path: Path) -> None:
    write_real_servers(tmp_path, "real_servers_short", shares=(0.8,), seeds=1, requests=30)
    assert {NORMALISED, RAW, DIFFERENCE, UNLOADED, SERVER} == set(rows_of(tmp_path)["kind"])


def test_pilots_alone_are_no_figure_and_a_damaged_table_is_told(tmp_path: Path) -> None:
    write_real_servers(tmp_path, requests=10)
    path = tmp_path / "tables" / "real_servers.csv"
    write_table(path, [row for row in read_table(path) if row["pilot"] == "true"])
    with pytest.raises(MissingInputError, match="pilot points only"):
        rows_of(tmp_path)
    write_real_servers(tmp_path, requests=10)
    (tmp_path / "tables" / "real_servers_differences.csv").write_text("panel\nnormalised\n")
    with pytest.raises(DamagedTableError, match="has no column"):
        rows_of(tmp_path)

"""Every figure of max goodput draws the clairvoyant bound, and names are written as a reader knows them."""

import math

import pandas as pd
import pytest
from matplotlib.figure import Figure

from figures.clairvoyant_bound import draw_bound_level
from figures.page import finish, new_figure
from figures.style import as_written


def panel(limit: float, open_end: str = "") -> tuple[Figure, list[str]]:
    figure = new_figure(4, 3)
    axes = figure.subplots()
    axes.plot([0, 1], [2, 6])
    axes.set_ylim(0, 6.2)
    draw_bound_level(axes, pd.DataFrame({"clairvoyant_rate_scale": [limit], "clairvoyant_open": [open_end]}))
    return figure, [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(("open_end", "said"), [("above_highest", "≥ 8"), ("below_lowest", "< 8"), ("", "8")])
def test_a_bound_above_the_data_has_a_line_a_number_and_room(open_end: str, said: str) -> None:
    figure, texts = panel(8.0, open_end)
    axes = figure.axes[0]
    assert texts == [said]
    assert list(axes.lines[-1].get_ydata()) == [8.0, 8.0]
    assert axes.get_ylim() == (0, pytest.approx(8.96))


def test_without_a_bound_the_panel_stays_as_it_is() -> None:
    figure, texts = panel(math.nan)
    assert texts == []
    assert len(figure.axes[0].lines) == 1
    assert figure.axes[0].get_ylim() == (0, 6.2)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("vLLM-like 2048 (fcfs)", "vLLM-like 2048 (FCFS)"),
        ("Chunked prefill 512 (s_edf)", "Chunked prefill 512 (S-EDF)"),
        ("FlowPrefill (half_layer)", "FlowPrefill (half layer)"),
        ("edf order", "EDF order"),
        ("DistServe (FCFS)", "DistServe (FCFS)"),
        ("my_edf_policy", "my_edf_policy"),
    ],
)
def test_settings_are_written_as_a_reader_knows_them(name: str, written: str) -> None:
    assert as_written(name) == written
    figure = new_figure(4, 3)
    axes = figure.subplots()
    (line,) = axes.plot([0], [0], label=name)
    finish(figure, "title", "note", [line])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [written]

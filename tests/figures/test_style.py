"""One look per series, told apart without colour."""

import itertools

import pytest

from figures.page import finish, new_figure
from figures.style import FIXED, as_written, ordered, styles_of

COMPARISON = [
    "FlowPrefill (operator)", "FlowPrefill (tile)", "DistServe (FCFS)",
    *(f"Chunked prefill {n} ({policy})" for policy in ("s_edf", "edf", "fcfs") for n in (256, 512, 1024, 2048, 8192)),
]  # fmt: skip


def test_known_series_keep_their_style_whatever_is_drawn_beside_them() -> None:
    alone = styles_of(["FlowPrefill (tile)"])["FlowPrefill (tile)"]
    beside = styles_of([*COMPARISON, "mine", "FlowPrefill (tile)"])["FlowPrefill (tile)"]
    assert alone == beside == FIXED["FlowPrefill (tile)"]


def test_both_ways_of_writing_a_rival_are_one_style() -> None:
    assert styles_of(["DistServe"])["DistServe"] == styles_of(["DistServe (FCFS)"])["DistServe (FCFS)"]
    short, long = "Chunked 512 s_edf", "Chunked prefill 512 (s_edf)"
    assert styles_of([short])[short] == styles_of([long])[long]


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(COMPARISON, 2)))
def test_series_of_the_comparison_differ_without_colour(one: str, other: str) -> None:
    styles = styles_of([one, other])
    assert (styles[one].marker, styles[one].line) != (styles[other].marker, styles[other].line)
    assert styles[one] != styles[other]


def test_an_unknown_series_gets_a_free_style_that_stays() -> None:
    alone = styles_of(["My policy"])["My policy"]
    beside = styles_of([*COMPARISON, "My policy", *FIXED])
    assert beside["My policy"] == alone
    assert alone.colour not in {style.colour for name, style in beside.items() if name != "My policy"}


def test_forty_unknown_series_all_look_different_and_do_not_depend_on_order() -> None:
    names = [f"policy {i}" for i in range(40)]
    styles = styles_of(names)
    assert len({(style.colour, style.line) for style in styles.values()}) == 40
    assert styles_of(reversed(names)) == styles


def test_a_chunk_size_without_a_place_gets_a_free_style_too() -> None:
    name = "Chunked prefill 4096 (s_edf)"
    assert styles_of([name])[name] != styles_of(["Chunked prefill 2048 (s_edf)"])["Chunked prefill 2048 (s_edf)"]


def test_legend_order() -> None:
    names = [
        "zeta",
        "Chunked prefill 512 (edf)",
        "DistServe (FCFS)",
        "Chunked prefill 2048 (s_edf)",
        "FlowPrefill (tile)",
    ]
    names += ["Chunked prefill 256 (s_edf)", "FlowPrefill (operator)", "alpha"]
    assert ordered(names) == [
        "FlowPrefill (operator)", "FlowPrefill (tile)", "DistServe (FCFS)", "Chunked prefill 256 (s_edf)",
        "Chunked prefill 2048 (s_edf)", "Chunked prefill 512 (edf)", "alpha", "zeta",
    ]  # fmt: skip


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

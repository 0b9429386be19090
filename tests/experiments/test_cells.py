import pytest

from harness.assembly.reading import SettingsError
from harness.experiments.cells import expand, read_cells, without_user_axes

FILE = [
    {"system": ["a", "b"], "load.rate_scale": [2, 3], "load.seed": [0, 1]},
    {"system": ["c"], "system.chunk": [64, 128], "load.rate_scale": [1], "load.seed": [0, 1]},
]


def short(points: tuple[dict[str, object], ...]) -> list[str]:
    keys = ("load.seed", "system", "system.chunk", "load.rate_scale")
    return [" ".join(str(point.get(key, "-")) for key in keys) for point in points]


def test_seeds_are_outermost_then_systems_and_rates_innermost() -> None:
    # fmt: off
    assert short(expand(read_cells(FILE))) == [
        "0 a - 2", "0 a - 3", "0 b - 2", "0 b - 3", "0 c 64 1", "0 c 128 1",
        "1 a - 2", "1 a - 3", "1 b - 2", "1 b - 3", "1 c 64 1", "1 c 128 1",
    ]
    # fmt: on


def test_rates_of_one_server_follow_each_other() -> None:
    cells = read_cells([{"load.rate_scale": [1, 2], "system.chunk": [64, 128], "system": "c", "load.seed": 0}])
    assert short(expand(cells)) == ["0 c 64 1", "0 c 64 2", "0 c 128 1", "0 c 128 2"]


def test_an_axis_the_user_set_is_taken_out_and_duplicates_dropped() -> None:
    cells = without_user_axes(read_cells(FILE), {"load.rate_scale": "5", "load.seed": "0"})
    assert short(expand(cells)) == ["- a - -", "- b - -", "- c 64 -", "- c 128 -"]


def test_picking_a_system_takes_out_its_settings_and_the_cells_of_others() -> None:
    cells = without_user_axes(read_cells(FILE), {"system": "c", "system.chunk": "256", "load.rate_scale": "1"})
    assert short(expand(cells)) == ["0 - - -", "1 - - -"]
    assert short(expand(without_user_axes(read_cells(FILE), {"system": "c"}))) == ["0 - - 1", "1 - - 1"]


def test_a_system_the_file_does_not_name_runs_at_the_rates_of_all() -> None:
    cells = without_user_axes(read_cells(FILE), {"system": "z", "load.seed": "0"})
    assert sorted(short(expand(cells))) == ["- - - 1", "- - - 2", "- - - 3"]


def test_no_cells_is_one_point() -> None:
    assert expand(read_cells(None)) == ({},)
    assert expand(without_user_axes(read_cells([{"load.seed": [0]}]), {"load.seed": "3"})) == ({},)


@pytest.mark.parametrize(
    ("raw", "words"),
    [("x", "must be a list"), ([1], r"cells\[0\] must be"), ([{"a": []}], r"cells\[0\]\.a is an empty list")],
)
def test_cells_that_are_not_axes_are_refused(raw: object, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read_cells(raw)

"""A table that is there and cannot be used is told, whatever could be drawn without it."""

from pathlib import Path

import pytest

from figures.draw import main
from tests.figures import synthetic_results as made


def test_a_damaged_max_goodput_table_never_silently_drops_the_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.write_comparison(tmp_path, "smoke", rates=(1, 2), seeds=1, requests=20)
    table = tmp_path / "tables" / "smoke_max_goodput.csv"
    table.write_text(table.read_text().replace("max_goodput_bound", "bound_of_it"))
    folders = ("--results", str(tmp_path), "--out", str(tmp_path / "out"))
    for arguments in ((), ("attainment_vs_rate",), ("--check",)):
        assert main([*folders, *arguments]) == 2
        says = f"the table {table} has no column max_goodput_bound"
        assert f"attainment_vs_rate: not {'compared' if arguments == ('--check',) else 'drawn'}, {says}" in (
            capsys.readouterr().err.splitlines()
        )
    table.unlink()
    assert main([*folders, "attainment_vs_rate"]) == 0

"""The command: what it writes, skips, refuses; and `--check`."""

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.collections import PathCollection

from figures import max_goodput
from figures.catalogue import DRAWINGS
from figures.draw import main
from figures.figure_files import first_difference, rows_as_written, rows_text
from figures.results import Inputs, Results
from harness.measurement.table_file import write_table
from tests.figures import synthetic_results as made
from tests.figures.synthetic_servers import write_plugin, write_real_servers


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results behind every figure."""
    root = tmp_path_factory.mktemp("full") / "results"
    made.write_comparison(root, rates=(0.5, 1, 2, 4), seeds=2, requests=30)
    made.write_slo_scale(root, requests=20)
    made.write_ablation(root, requests=20, seeds=2)
    made.write_granularity(root)
    made.write_simulated(root)
    made.write_disaggregated(root, "pd_disaggregated", source="measured")
    made.write_workload(root)
    write_real_servers(root, seeds=2, requests=30)
    write_plugin(root, seeds=2, requests=30)
    return root


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """One experiment, granularity beside it."""
    made.write_comparison(tmp_path / "results", "smoke", rates=(1, 2), seeds=1, requests=20)
    made.write_granularity(tmp_path / "results")
    return tmp_path / "results"


def draw(results: Path, out: Path, *more: str) -> int:
    return main(["--results", str(results), "--out", str(out), *more])


WRITTEN = ("workload", "attainment_vs_rate", "ttft_cdf", "protocols", "sim_rounds")


def test_what_is_drawn_agrees_with_its_rows(full: Path, tmp_path: Path) -> None:
    assert draw(full, tmp_path, *WRITTEN) == 0
    files = {f"{name}.{suffix}" for name in WRITTEN for suffix in ("png", "pdf", "csv")}
    assert {path.name for path in tmp_path.iterdir()} == files | {"protocols.md"}
    assert (tmp_path / "sim_rounds.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "sim_rounds.pdf").read_bytes().startswith(b"%PDF")
    assert "| FlowPrefill (operator) |" in (tmp_path / "protocols.md").read_text()
    assert draw(full, tmp_path, "--check", *WRITTEN) == 0


@pytest.mark.parametrize("name", DRAWINGS)
def test_every_figure_is_made_of_its_rows_as_written(full: Path, name: str) -> None:
    figure = drawn(name, full, "goodput_vs_rate")
    assert ("simulated" in words(figure)) == (name.startswith("sim_") or name == "protocols")


def test_the_same_rows_give_the_same_bytes(small: Path, tmp_path: Path) -> None:
    for out in ("a", "b"):
        assert draw(small, tmp_path / out, "max_goodput", "blocking_by_granularity") == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_check_names_the_file_and_the_first_row_that_differs(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw(small, tmp_path, "blocking_by_granularity")
    path = tmp_path / "blocking_by_granularity.csv"
    path.write_text(path.read_text().replace(",8.6,", ",8.7,"))
    capsys.readouterr()
    assert draw(small, tmp_path, "--check", "blocking_by_granularity") == 1
    said = capsys.readouterr().err
    assert said == f"{path} differs in row 4: blocking_mean_ms is 8.7, drawn 8.6\n"


def test_check_lets_the_last_digit_pass(small: Path, tmp_path: Path) -> None:
    draw(small, tmp_path, "blocking_by_granularity")
    path = tmp_path / "blocking_by_granularity.csv"
    path.write_text(path.read_text().replace(",8.6,", ",8.600001,"))
    assert draw(small, tmp_path, "--check", "blocking_by_granularity") == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: lines[:-1], "ends before row 9"),
        (lambda lines: [*lines, lines[-1]], "has a row 10 that would not be drawn"),
        (lambda lines: ["x" + lines[0], *lines[1:]], "differs in its header"),
    ],
)
def test_check_sees_rows_that_are_gone_or_new(small: Path, tmp_path: Path, change: object, says: str) -> None:
    rows = DRAWINGS["blocking_by_granularity"].rows_from(Inputs(Results(small), "smoke"))
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(change(rows_text(rows).splitlines())) + "\n")  # type: ignore[operator]
    assert says in (first_difference(path, rows) or "")


def test_check_fails_when_committed_rows_have_lost_their_table(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw(small, tmp_path, "blocking_by_granularity")
    (small / "tables" / "granularity.csv").unlink()
    assert draw(small, tmp_path, "--check", "blocking_by_granularity") == 1
    assert "can no longer be drawn" in capsys.readouterr().err


def test_check_fails_when_rows_were_never_committed(small: Path, tmp_path: Path) -> None:
    assert draw(small, tmp_path / "nothing", "--check", "max_goodput") == 1


def test_a_missing_table_is_skipped_and_listed_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.write_granularity(tmp_path)
    assert draw(tmp_path, tmp_path / "out") == 0
    said = capsys.readouterr().err.splitlines()
    assert f"slo_scale: not drawn, the table {tmp_path / 'tables' / 'slo_scale.csv'} is not there" in said
    absent = [name for name in DRAWINGS if name != "blocking_by_granularity"]
    assert said[-1] == f"not drawn: {', '.join(absent)}"
    assert not (tmp_path / "out" / "slo_scale.png").exists()


def test_an_asked_figure_without_its_table_is_exit_2(small: Path, tmp_path: Path) -> None:
    assert draw(small, tmp_path, "slo_scale", "max_goodput") == 2
    assert (tmp_path / "max_goodput.png").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "there is no figure nonsense"),
        (["--experiment", "mooncake"], "there is no table"),
        (["--rate", "9", "ttft_cdf"], "no point at rate_scale 9"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert draw(small, tmp_path, *arguments) == 2
    assert says in capsys.readouterr().err


def test_nothing_to_draw_is_exit_2(tmp_path: Path) -> None:
    assert draw(tmp_path / "none", tmp_path / "out") == 2
    assert draw(tmp_path / "none", tmp_path / "out", "--check") == 2


def test_the_headline_table_goes_before_reproduce_and_smoke(small: Path, tmp_path: Path) -> None:
    made.write_comparison(small, "reproduce", "azure_code", rates=(1, 2), seeds=1, requests=20)
    draw(small, tmp_path, "max_goodput")
    assert "azure_code" in (tmp_path / "max_goodput.csv").read_text()
    draw(small, tmp_path, "max_goodput", "--experiment", "smoke")
    assert "azure_code" not in (tmp_path / "max_goodput.csv").read_text()


def test_figures_are_drawn_without_torch(small: Path, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('torch', 'hydra', 'omegaconf', 'scipy'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from figures.draw import main\n"
        f"sys.exit(main(['--results', {str(small)!r}, '--out', {str(tmp_path)!r}, 'max_goodput']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def drawn(name: str, results: Path, experiment: str) -> object:
    drawing = DRAWINGS[name]
    return drawing.draw(rows_as_written(drawing.rows_from(Inputs(Results(results), experiment))))


def words(figure: object) -> str:
    axes = figure.axes  # type: ignore[attr-defined]
    return "\n".join(text.get_text() for one in axes for text in [*one.texts, one.title])


def test_invalid_points_are_hollow_and_simulated_ones_marked(tmp_path: Path) -> None:
    points = [(made.at(made.FACTS, experiment="smoke", source="simulated", rate_scale=float(r)), 4.0) for r in (1, 2)]
    made.write_points_of(tmp_path, points, 20, invalid=("FlowPrefill__operator_-slo_aware-2-1-0",))
    figure = drawn("attainment_vs_rate", tmp_path, "smoke")
    overall = figure.axes[0]  # type: ignore[attr-defined]
    faces = [tuple(one.get_facecolor()[0][:3]) for one in overall.collections if isinstance(one, PathCollection)]
    assert (1.0, 1.0, 1.0) in faces
    assert len(set(faces)) == 2
    assert "simulated" in words(figure)


def test_rates_that_are_not_valid_are_hollow_circles_beside_the_bar(tmp_path: Path) -> None:
    facts = [made.at(made.FACTS, experiment="smoke", rate_scale=float(r), seed=s) for r in (1, 2) for s in (0, 1)]
    made.write_points_of(tmp_path, [(fact, 9.0) for fact in facts], 20)
    before = max_goodput.rows(Inputs(Results(tmp_path), "smoke"))
    columns = asdict(made.at(facts[0], rate_scale=4.0))
    write_table(tmp_path / "tables" / "smoke_not_valid.csv", [{**columns, "try": n} for n in (None, 1)])
    rows = max_goodput.rows(Inputs(Results(tmp_path), "smoke"))
    assert rows[["bound", "max_goodput_rate_scale"]].to_numpy().tolist() == [["above_highest", 2.0], ["not_valid", 4.0]]
    pd.testing.assert_frame_equal(rows[:1], before, check_dtype=False)
    figure = drawn("max_goodput", tmp_path, "smoke")
    bars = figure.axes[0]  # type: ignore[attr-defined]
    hollow = [line for line in bars.lines if line.get_marker() == "o"]
    assert [(*line.get_xdata(), line.get_markerfacecolor()) for line in hollow] == [(4.0, "white")]
    assert bars.get_xlim()[1] > 4
    assert "≥ 2" in words(figure)


def test_a_bound_is_an_arrow_and_says_at_least(tmp_path: Path) -> None:
    facts = [made.at(made.FACTS, experiment="smoke", rate_scale=float(r), seed=s) for r in (1, 2) for s in (0, 1)]
    points = [(fact, 9.0) for fact in facts]
    made.write_points_of(tmp_path, points, 20)
    figure = drawn("max_goodput", tmp_path, "smoke")
    assert "≥ 2" in words(figure)
    assert any(text.arrow_patch is not None for text in figure.axes[0].texts)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["max_goodput", "attainment_vs_rate"])
def test_a_number_that_is_none_is_named_with_its_line(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    table, column = {
        "max_goodput": ("smoke_max_goodput", "max_goodput_rps"),
        "attainment_vs_rate": ("smoke", "attainment"),
    }[name]
    path = small / "tables" / f"{table}.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()]
    rows[2][rows[0].index(column)] = "abc"
    path.write_text("\n".join(map(",".join, rows)) + "\n")
    assert draw(small, tmp_path, name) == 2
    assert f"{path}, line 3: {column} must be a number, got 'abc'" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_sentence(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert draw(small, tmp_path / "file", "max_goodput") == 2
    assert capsys.readouterr().err == f"cannot write figures to {tmp_path / 'file'}: File exists\n"

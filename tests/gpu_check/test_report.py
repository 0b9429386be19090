import csv
import json
from pathlib import Path

import pytest

from bench.gpu_check import __main__ as command
from bench.gpu_check.report import Report


def full(judge_speed: bool) -> Report:
    report = Report(judge_speed, part="speed")
    report.number("times", 3)
    report.speed("throughput kept", 0.98, "x", ">= 0.99", False)
    report.must("bits that differ", True, "0", 0)
    report.row("times", tokens=64, seconds=0.5)
    report.row("times", tokens=128, seconds=None)
    return report


def test_a_speed_that_misses_fails_where_speed_is_judged_only() -> None:
    assert full(judge_speed=True).missed == ["speed: throughput kept"]
    assert full(judge_speed=False).missed == []
    assert [line.verdict for line in full(judge_speed=True).lines] == ["number", "FAIL", "pass"]


def test_the_table_has_a_line_for_each_fact() -> None:
    lines = full(judge_speed=True).text().splitlines()
    assert len(lines) == 4
    assert lines[2].split() == ["speed", "throughput", "kept", "0.98", "x", ">=", "0.99", "FAIL"]


def test_everything_is_written_and_can_be_read(tmp_path: Path) -> None:
    full(judge_speed=True).write(tmp_path, {"device": "none"})
    content = json.loads((tmp_path / "results.json").read_text())
    assert (content["device"], content["missed"], len(content["lines"])) == ("none", ["speed: throughput kept"], 3)
    with (tmp_path / "times.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"tokens": "64", "seconds": "0.5"},
            {"tokens": "128", "seconds": ""},
        ]
    with (tmp_path / "summary.csv").open(newline="") as file:
        assert [row["verdict"] for row in csv.DictReader(file)] == ["number", "FAIL", "pass"]
    assert not list(tmp_path.glob(".*"))


def test_a_part_that_breaks_is_a_failure_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(report: Report) -> None:
        report.number("before", 1)
        raise RuntimeError("no memory\nand a stack")

    parts = [("first", broken), ("second", lambda report: report.must("holds", True, "yes"))]
    monkeypatch.setattr("bench.gpu_check.parts.parts_of", lambda setting: iter(parts))
    assert command.main(["--tiny", "--out", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr().out
    assert "missed: first: failed: RuntimeError: no memory\n" in shown
    verdicts = [
        (line["part"], line["passed"]) for line in json.loads((tmp_path / "out/results.json").read_text())["lines"]
    ]
    assert verdicts == [("first", None), ("first", False), ("second", True)]


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert command.main(["--tiny", "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.strip().endswith("File exists")
    with pytest.raises(SystemExit, match="2"):
        command.main([])


def test_without_a_cuda_device_it_says_what_can_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert command.main(["--out", str(tmp_path)]) == 2
    assert "torch finds no CUDA device here; --tiny runs" in capsys.readouterr().err

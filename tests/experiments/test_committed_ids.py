"""The ids of committed points follow from their recorded settings: a setting added later must not change them."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.core.trace import Trace
from harness.assembly.reading import read
from harness.assembly.settings import PointSettings
from harness.experiments.fingerprint import PointInput, point_id
from harness.experiments.pause_points import study_id
from harness.experiments.pause_rounds import PausesSettings
from harness.experiments.prepare import Prepared

RAW = Path(__file__).resolve().parents[2] / "results" / "raw"
FOLDERS = sorted(path.parent for path in RAW.glob("*/*/records.csv.gz"))
STUDIES = sorted(path.parent for path in RAW.glob("*/*/measurement.json.gz"))


def test_there_are_committed_points() -> None:
    assert len(FOLDERS) > 50
    assert len(STUDIES) > 5


def recorded(folder: Path) -> tuple[PointSettings, PointInput, dict[str, Any]]:
    content = json.loads((folder / "settings.json").read_text())
    settings = dict(content["settings"])
    settings.pop("effective")
    given = settings.pop("input")
    known = PointInput(given["trace_sha256"], given["profile_sha256"], given["slo_speed_factor"])
    return read(PointSettings, settings, ""), known, content


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_committed_point_keeps_its_id(folder: Path) -> None:
    point, given, _ = recorded(folder)
    assert point_id(point, given) == folder.name


@pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)
def test_a_committed_study_keeps_its_id(folder: Path) -> None:
    point, given, content = recorded(folder)
    ready = Prepared(point, "", given, None, Trace("", ()), {"series": point.system.series})
    assert study_id(ready, PausesSettings(**content["pauses"])) == folder.name

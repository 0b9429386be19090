"""The ids of committed points follow from their recorded settings: a setting added later must not change them."""

import json
from pathlib import Path

import pytest

from harness.assembly.reading import read
from harness.assembly.settings import PointSettings
from harness.experiments.fingerprint import PointInput, point_id

RAW = Path(__file__).resolve().parents[2] / "results" / "raw"
FOLDERS = sorted(path.parent for path in RAW.glob("*/*/records.csv.gz"))


def test_there_are_committed_points() -> None:
    assert len(FOLDERS) > 50


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_committed_point_keeps_its_id(folder: Path) -> None:
    settings = dict(json.loads((folder / "settings.json").read_text())["settings"])
    settings.pop("effective")
    given = settings.pop("input")
    point = read(PointSettings, settings, "")
    known = PointInput(given["trace_sha256"], given["profile_sha256"], given["slo_speed_factor"])
    assert point_id(point, known) == folder.name

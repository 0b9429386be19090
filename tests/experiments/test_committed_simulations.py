"""The committed simulated stores hold the points that their experiment files ask for: none missing, none left over."""

from pathlib import Path

import pytest

from harness.experiments.cells import expand, read_cells, without_user_axes
from harness.experiments.compose import outside_hydra
from harness.experiments.simulated_store import POINTS, read_simulated

RAW = Path(__file__).resolve().parents[2] / "results" / "raw"
STORES = sorted(path.parent for path in RAW.glob(f"sim_*/{POINTS}"))


def test_there_are_stores() -> None:
    assert len(STORES) > 20


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
def test_a_store_has_as_many_points_as_its_experiment(store: Path) -> None:
    with outside_hydra() as job:
        made = job([f"experiment={store.name}"])
    asked = expand(without_user_axes(read_cells(made.config["cells"]), made.user))
    assert len(read_simulated(store)) == len(asked)

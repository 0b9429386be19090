"""docs/figures.md lists the figures there are."""

import re
from pathlib import Path

from figures.catalogue import DRAWINGS

LIST = Path(__file__).parents[2] / "docs" / "figures.md"


def test_every_figure_is_listed_and_no_other() -> None:
    rows = [
        line.split("|")[1] for line in LIST.read_text(encoding="utf-8").splitlines() if line.startswith(("| [", "| `"))
    ]
    listed = {name for row in rows for name in re.findall(r"(?:\[|`)(\w+)(?:\]|`)", row)}
    assert listed == set(DRAWINGS)


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", LIST.read_text(encoding="utf-8"))
    assert links
    assert not [link for link in links if not (LIST.parent / link).is_file()]

"""Where simulated points come from, and the command that simulates one of them again."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.experiments.provenance import provenance
from harness.experiments.secrets_left_out import without_secrets


def simulation_origin(overrides: Sequence[str]) -> dict[str, Any]:
    """The provenance of one run. overrides: as the user typed them; where results go is left out."""
    typed = [override for override in overrides if not override.startswith("output.")]
    return provenance({}, typed=without_secrets(typed))


def again(origin: Mapping[str, Any], experiment: str, point: str, results: Path) -> str:
    """A command line that simulates this point, and no other, with the code at hand."""
    typed = [override for override in origin.get("typed", []) if not override.startswith("experiment=")]
    words = ["python", "-m", "harness.experiments.run", f"experiment={experiment}", *typed]
    place = [] if results == Path("results") else [f"output.results={results}"]
    return shlex.join([*words, f"output.only={point}", "output.redo=true", *place])

"""What predictors are fitted to: timings of prefills and operators, from a profile file or a warm-up.

The file is made by `python -m engine.torch_backend.profile`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.scheduling.predictors.operator_sum import OperatorSample
from engine.scheduling.predictors.polynomial import PrefillSample
from engine.serving.settings import SettingsError


@dataclass(frozen=True, slots=True)
class Timings:
    """layers: of the model served. operators: empty where only whole prefills were timed."""

    layers: int
    prefills: tuple[PrefillSample, ...]
    operators: tuple[OperatorSample, ...] = ()

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> "Timings":
        """The inverse of `dataclasses.asdict`. Raises KeyError or TypeError for what is none."""
        return Timings(
            given["layers"],
            tuple(PrefillSample(**sample) for sample in given["prefills"]),
            tuple(OperatorSample(**sample) for sample in given["operators"]),
        )


def read_timings(path: Path, layers: int) -> Timings:
    """The timings of a profile file. Raises SettingsError with one sentence for a file that is no profile."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"--profile {path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise SettingsError(f"--profile {path}: not valid JSON ({error})") from error
    prefills = content.get("prefill") if isinstance(content, dict) else None
    if not isinstance(prefills, list) or not prefills:
        raise SettingsError(f'--profile {path}: has no list "prefill" of timings')
    operators = content.get("operators", [])
    if not isinstance(operators, list):
        raise SettingsError(f'--profile {path}: "operators" is not a list')
    return Timings(
        layers,
        tuple(PrefillSample(*_lengths(path, f"prefill[{i}]", row)) for i, row in enumerate(prefills)),
        tuple(_operator(path, f"operators[{i}]", row) for i, row in enumerate(operators)),
    )


def _operator(path: Path, name: str, row: Any) -> OperatorSample:
    lengths = _lengths(path, name, row)
    if not isinstance(row.get("operator"), str):
        raise SettingsError(f"--profile {path}: {name} names no operator")
    return OperatorSample(row["operator"], *lengths)


def _lengths(path: Path, name: str, row: Any) -> tuple[int, int, float]:
    try:
        new, context, seconds = int(row["new_tokens"]), int(row["context_tokens"]), float(row["seconds"])
    except (KeyError, TypeError, ValueError) as error:
        raise SettingsError(f"--profile {path}: {name} needs numbers new_tokens, context_tokens and seconds") from error
    if new < 1 or context < 0 or not (seconds > 0 and math.isfinite(seconds)):
        raise SettingsError(f"--profile {path}: {name} has a length or a time that cannot be")
    return new, context, seconds

"""Reading the prefill timings of a profile file (made by `python -m engine.torch_backend.profile`)."""

import json
import math
from pathlib import Path
from typing import Any

from engine.scheduling.predictors.polynomial import PrefillSample
from engine.serving.settings import SettingsError


def read_prefill_samples(path: Path) -> list[PrefillSample]:
    """The samples under "prefill". Raises SettingsError with one sentence for a file that is not a profile."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"--profile {path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise SettingsError(f"--profile {path}: not valid JSON ({error})") from error
    rows = content.get("prefill") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows:
        raise SettingsError(f'--profile {path}: has no list "prefill" of timings')
    return [_sample(path, index, row) for index, row in enumerate(rows)]


def _sample(path: Path, index: int, row: Any) -> PrefillSample:
    try:
        new, context, seconds = int(row["new_tokens"]), int(row["context_tokens"]), float(row["seconds"])
    except (KeyError, TypeError, ValueError) as error:
        raise SettingsError(
            f"--profile {path}: prefill[{index}] needs numbers new_tokens, context_tokens and seconds"
        ) from error
    if new < 1 or context < 0 or not (seconds > 0 and math.isfinite(seconds)):
        raise SettingsError(f"--profile {path}: prefill[{index}] has a length or a time that cannot be")
    return PrefillSample(new, context, seconds)

"""The claims as written in claims.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("claims.yaml")
NEEDED = ("id", "statement", "value", "unit", "comparison", "tolerance", "judge", "table", "source", "protocol")


class ClaimsFileError(Exception):
    """claims.yaml cannot be used; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of the paper, held against one table.

    value: what the paper says, a number or the ends of a range; None where it is a pattern or not known here.
    tolerance: share of the value. judge: who decides (claim_outcomes.JUDGES). table: the experiment it is judged
    from; judge or table None = not measured here. protocol: how ours was come by, for a person.
    calibration: the simulated device, where ours is simulated. load_protocol: the protocol the rows must have
    (paper, steady_state). where: further columns and the value the rows must have.
    known_contradiction: why ours contradicts the claim, where that has been looked into; the outcome stays, the command
    no longer fails for it.
    """

    id: str
    statement: str
    value: float | tuple[float, float] | None
    unit: str
    comparison: str
    tolerance: float
    judge: str | None
    table: str | None
    source: str
    protocol: str
    calibration: str | None = None
    load_protocol: str | None = None
    where: Mapping[str, str | float] = field(default_factory=dict)
    known_contradiction: str | None = None

    @property
    def threshold(self) -> float:
        """The paper's number; of a range, its lower end."""
        if self.value is None:
            raise ClaimsFileError(f"claim {self.id} has no value to compare with")
        return self.value[0] if isinstance(self.value, tuple) else self.value

    @property
    def value_text(self) -> str:
        """The paper's value as a person writes it; empty where there is none."""
        if self.value is None:
            return ""
        text = "-".join(f"{end:g}" for end in self.value) if isinstance(self.value, tuple) else f"{self.value:g}"
        return f"{text}{self.unit}" if self.unit == "x" else f"{text} {self.unit}".strip()


def read_claims(path: Path = PATH) -> tuple[Claim, ...]:
    """Every claim of the file. Raises ClaimsFileError."""
    import yaml

    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))["claims"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ClaimsFileError(f"{path} cannot be read as a list of claims: {error}") from error
    claims = tuple(_claim(entry, path) for entry in entries)
    twins = {claim.id for claim in claims if sum(other.id == claim.id for other in claims) > 1}
    if twins:
        raise ClaimsFileError(f"{path}: several claims are called {', '.join(sorted(twins))}")
    return claims


def _claim(entry: dict[str, Any], path: Path) -> Claim:
    names = [one.name for one in fields(Claim)]
    missing, unknown = [n for n in NEEDED if n not in entry], [n for n in entry if n not in names]
    if missing or unknown:
        wrong = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has unknown {', '.join(unknown)}"] * bool(unknown)
        raise ClaimsFileError(f"{path}: claim {entry.get('id')} {' and '.join(wrong)}")
    value = entry["value"]
    return Claim(**{**entry, "value": tuple(value) if isinstance(value, list) else value})

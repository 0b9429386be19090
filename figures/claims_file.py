"""The claims as written in claims.yaml."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("claims.yaml")


class ClaimsFileError(Exception):
    """claims.yaml cannot be used; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of the paper.

    value: what the paper says, a number or the ends of a range; None where it is a pattern.
    tolerance: share of the value. table: the experiment it is judged from; None = not measured here.
    """

    id: str
    statement: str
    value: float | tuple[float, float] | None
    unit: str
    comparison: str
    tolerance: float
    table: str | None
    source: str
    protocol: str

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
    return tuple(_claim(entry, path) for entry in entries)


def _claim(entry: dict[str, Any], path: Path) -> Claim:
    names = {field.name for field in fields(Claim)}
    if set(entry) != names:
        raise ClaimsFileError(f"{path}: claim {entry.get('id')} needs exactly the fields {', '.join(sorted(names))}")
    value = entry["value"]
    return Claim(**{**entry, "value": tuple(value) if isinstance(value, list) else value})

"""The report on the claims, for people and for programs."""

import json
import math
from collections.abc import Sequence

from figures.claim_findings import Finding


def as_markdown(findings: Sequence[Finding]) -> str:
    """A table for people: paper's value, ours, outcome; then source and protocol of each."""
    lines = [
        "# The paper's claims against these results",
        "",
        "| id | claim | paper | here | outcome |",
        "|---|---|---|---|---|",
    ]
    for finding in findings:
        claim = finding.claim
        outcome = f"{finding.outcome}{' (simulated)' if finding.simulated else ''}"
        lines.append(f"| {claim.id} | {claim.statement} | {claim.value_text} | {_ours(finding)} | {outcome} |")
    for finding in findings:
        claim = finding.claim
        lines += [
            "",
            f"**{claim.id}.** {claim.protocol}",
            f"Comparison: {claim.comparison}, tolerance {claim.tolerance:g}.",
        ]
        lines += [f"Found: {finding.note}."] if finding.note and finding.note != claim.protocol else []
        lines += [f"Known: {claim.known_contradiction}"] if finding.contradicts and claim.known_contradiction else []
        lines += [f"Source: {claim.source}."]
    return "\n".join(lines) + "\n"


def as_json(findings: Sequence[Finding]) -> str:
    """One object per claim; an interval's end that nothing bounds is the text "unbounded"."""
    entries = [
        {
            "id": finding.claim.id,
            "statement": finding.claim.statement,
            "paper": finding.claim.value,
            "paper_value": finding.claim.value,
            "unit": finding.claim.unit,
            "comparison": finding.claim.comparison,
            "tolerance": finding.claim.tolerance,
            "ours": _rounded(finding.ours),
            "ours_low": _rounded(finding.low),
            "ours_high": _rounded(finding.high),
            "outcome": finding.outcome.value,
            "note": finding.note,
            "known_contradiction": finding.claim.known_contradiction,
            "simulated": finding.simulated,
            "vanished": finding.vanished,
            "source": finding.claim.source,
            "calibration": finding.claim.calibration,
            "load_protocol": finding.claim.load_protocol,
            "table": finding.claim.table,
            "protocol": finding.claim.protocol,
        }
        for finding in findings
    ]
    return json.dumps({"claims": entries}, indent=2, allow_nan=False) + "\n"


def _ours(finding: Finding) -> str:
    if finding.ours is None:
        return ""
    unit = "x" if finding.claim.unit == "x" else ""
    if finding.low is None or finding.high is None:
        return f"{finding.ours:.3g}{unit}"
    high = "unbounded" if math.isinf(finding.high) else f"{finding.high:.3g}"
    return f"{finding.ours:.3g}{unit} [{finding.low:.3g}, {high}]"


def because(finding: Finding) -> str:
    """Our value and why, behind an outcome."""
    ours = _ours(finding)
    return "".join([f", {ours}" if ours else "", f" ({finding.note})" if finding.note else ""])


def _rounded(value: float | None) -> float | str | None:
    if value is None:
        return None
    return "unbounded" if math.isinf(value) else float(f"{value:.6g}")

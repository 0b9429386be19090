"""Hold the paper's claims against the results: `python -m figures.check_claims`; writes claims.md and claims.json."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from figures.claim_outcomes import Finding, Outcome, judge_claims
from figures.claims_file import ClaimsFileError, read_claims
from figures.results import Results
from harness.measurement.table_file import write_whole

AS_CLAIMED, NOT_AS_CLAIMED, CANNOT = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report. 1 when a claim is contradicted or its data vanished from a table, 2 when it cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m figures.check_claims", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="results folder (default: results)")
    parser.add_argument("--out", type=Path, default=Path("figures/out"), help="report's folder (default: figures/out)")
    options = parser.parse_args(argv)
    if not options.results.is_dir():
        print(f"there is no results folder {options.results}", file=sys.stderr)
        return CANNOT
    try:
        findings = judge_claims(Results(options.results), read_claims())
    except ClaimsFileError as error:
        print(error, file=sys.stderr)
        return CANNOT
    try:
        write_whole(options.out / "claims.md", as_markdown(findings).encode())
        write_whole(options.out / "claims.json", as_json(findings).encode())
    except OSError as error:
        print(f"cannot write the report to {options.out}: {error.strerror}", file=sys.stderr)
        return CANNOT
    for finding in findings:
        print(f"{finding.claim.id}: {finding.outcome}{_because(finding)}")
    print(f"report: {options.out / 'claims.md'}, {options.out / 'claims.json'}")
    return NOT_AS_CLAIMED if any(f.vanished or f.outcome is Outcome.CONTRADICTED for f in findings) else AS_CLAIMED


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
        lines += [f"Source: {claim.source}."]
    return "\n".join(lines) + "\n"


def as_json(findings: Sequence[Finding]) -> str:
    """One object per claim; an interval's end that nothing bounds is the text "unbounded"."""
    entries = [
        {
            "id": finding.claim.id,
            "statement": finding.claim.statement,
            "paper_value": finding.claim.value,
            "unit": finding.claim.unit,
            "comparison": finding.claim.comparison,
            "tolerance": finding.claim.tolerance,
            "ours": _rounded(finding.ours),
            "ours_low": _rounded(finding.low),
            "ours_high": _rounded(finding.high),
            "outcome": finding.outcome.value,
            "note": finding.note,
            "simulated": finding.simulated,
            "vanished": finding.vanished,
            "source": finding.claim.source,
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


def _because(finding: Finding) -> str:
    ours = _ours(finding)
    return "".join([f", {ours}" if ours else "", f" ({finding.note})" if finding.note else ""])


def _rounded(value: float | None) -> float | str | None:
    if value is None:
        return None
    return "unbounded" if math.isinf(value) else float(f"{value:.6g}")


if __name__ == "__main__":
    sys.exit(main())

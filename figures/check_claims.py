"""Hold the paper's claims against the results: `python -m figures.check_claims`; writes claims.md and claims.json."""

import sys
from collections.abc import Sequence
from pathlib import Path

from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command

AS_CLAIMED, NOT_AS_CLAIMED = 0, 1


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report. 1 when a claim is contradicted without a known cause, or its data vanished from a table; 2 when
    it cannot be made."""
    parser = OneSentenceParser(prog="python -m figures.check_claims", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="results folder (default: results)")
    parser.add_argument("--out", type=Path, default=Path("figures/out"), help="report's folder (default: figures/out)")
    options = parser.parse_args(argv)

    from figures.claim_outcomes import judge_claims
    from figures.claims_file import ClaimsFileError, read_claims
    from figures.claims_report import as_json, as_markdown, because
    from figures.results import Results
    from harness.measurement.table_file import write_whole

    if not options.results.is_dir():
        print(f"there is no results folder {options.results}", file=sys.stderr)
        return MISTAKE_STATUS
    try:
        findings = judge_claims(Results(options.results), read_claims())
    except ClaimsFileError as error:
        print(error, file=sys.stderr)
        return MISTAKE_STATUS
    try:
        write_whole(options.out / "claims.md", as_markdown(findings).encode())
        write_whole(options.out / "claims.json", as_json(findings).encode())
    except OSError as error:
        print(f"cannot write the report to {options.out}: {error.strerror}", file=sys.stderr)
        return MISTAKE_STATUS
    for finding in findings:
        print(f"{finding.claim.id}: {finding.outcome}{because(finding)}")
    print(f"report: {options.out / 'claims.md'}, {options.out / 'claims.json'}")
    alarming = any(f.vanished or (f.contradicts and f.claim.known_contradiction is None) for f in findings)
    return NOT_AS_CLAIMED if alarming else AS_CLAIMED


if __name__ == "__main__":
    sys.exit(run_command(main))

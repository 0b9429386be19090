"""The command: python -m harness.experiments.show POINT. Walks a number back to the run it came from.

POINT: a point's id, or the beginning of one that no other point has. Exit status 2 for a point that does not exist.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = OneSentenceParser(
        prog="python -m harness.experiments.show", description="Show where a point's numbers come from."
    )
    parser.add_argument("point", help="id of a point (a table's or a figure's column `point`), or its beginning")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of results (default: results)")
    given = parser.parse_args(arguments)

    from harness.experiments.point_origin import UnknownPointError, describe, find_point

    try:
        print(describe(find_point(given.results, given.point), given.results))
    except UnknownPointError as error:
        print(f"show: {error}", file=sys.stderr)
        return MISTAKE_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))

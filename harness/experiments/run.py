"""The command: python -m harness.experiments.run experiment=NAME [key=value ...], and -m for sweeps.

Exit status: 0 all points are there, 1 some failed, 2 a mistake in the settings, 130 interrupted.
"""

import sys

from engine.core.command_line import run_command


def main() -> int:
    """The command's exit status."""
    from harness.experiments import compose
    from harness.experiments.kinds import run_job

    return compose.main(run_job)


if __name__ == "__main__":
    sys.exit(run_command(main))

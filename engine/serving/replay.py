"""The command `python -m engine.serving.replay LOG`: does a fresh scheduler decide as the logged run did?

Exit status: 0 the same commands at every call, 1 a difference (it is shown), 2 not a decision log.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay one log."""
    parser = OneSentenceParser(prog="python -m engine.serving.replay", description=__doc__)
    parser.add_argument("log", type=Path, help="file written by the server's --decision-log")
    path: Path = parser.parse_args(arguments).log

    from engine.model.shape import ModelLoadError
    from engine.scheduling.decision_log import DecisionLogError
    from engine.serving.log_replay import replay_file
    from engine.serving.settings import SettingsError

    try:
        calls, difference = replay_file(path)
    except OSError as error:
        print(f"replay: {path}: {error.strerror}", file=sys.stderr)
        return MISTAKE_STATUS
    except (DecisionLogError, SettingsError, ModelLoadError) as error:
        print(f"replay: {path}: {error}", file=sys.stderr)
        return MISTAKE_STATUS
    if difference is not None:
        print(f"call {difference.call} (from 0) differs:")
        print(f"  logged   {difference.logged}\n  replayed {difference.replayed}")
        return 1
    print(f"{calls} calls replayed, all with the same commands")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))

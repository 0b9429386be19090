"""The command `python -m engine.serving.server`: OpenAI's HTTP API over an engine in a process of its own.

Exit status: 0 after a graceful stop, 1 when the engine died, 2 for a user's mistake (one sentence on stderr).
"""

import sys
from collections.abc import Sequence

from engine.core.command_line import MISTAKE_STATUS, run_command
from engine.serving.settings import SettingsError, parse_command_line


def main(arguments: Sequence[str] | None = None, instance_command: Sequence[str] | None = None) -> int:
    """Run the server until it is told to stop. instance_command: starts the engine; None = this project's."""
    engine_settings, server_settings = parse_command_line(arguments)

    from engine.serving.engine_start import INSTANCE_COMMAND
    from engine.serving.http_process import serve

    try:
        return serve(engine_settings, server_settings, instance_command or INSTANCE_COMMAND)
    except SettingsError as error:
        print(f"server: {error}", file=sys.stderr)
        return MISTAKE_STATUS


if __name__ == "__main__":
    sys.exit(run_command(main))

"""The command `python -m engine.serving.proxy`: OpenAI's HTTP API over prefill instances and decode instances.

A request is prefilled on one instance, which gives its first token; its KV is then handed over to another one, which
gives the rest. Exit status: 0 after a graceful stop, 1 when no instance of a role can be started any more, 2 for a
user's mistake (one sentence on stderr).
"""

import sys
from collections.abc import Sequence
from functools import partial

from engine.core.command_line import MISTAKE_STATUS, run_command
from engine.serving.proxy_settings import ProxySettings, check
from engine.serving.settings import EngineSettings, ServerSettings, SettingsError, parser_of, part


def main(arguments: Sequence[str] | None = None, instance_command: Sequence[str] | None = None) -> int:
    """Run the proxy until it is told to stop. instance_command: starts an instance; None = this project's."""
    parser = parser_of(
        "engine.serving.proxy",
        "OpenAI-compatible proxy over prefill and decode instances of the FlowPrefill engine.",
        {"proxy": ProxySettings, "engine": EngineSettings, "server": ServerSettings},
    )
    given = vars(parser.parse_args(arguments))

    from engine.serving.engine_start import INSTANCE_COMMAND
    from engine.serving.http_process import serve
    from engine.serving.proxy_engine import ProxyEngine

    try:
        proxy_settings = part(ProxySettings, given)
        check(proxy_settings)
        launch = partial(ProxyEngine.launch, proxy_settings)
        command = instance_command or INSTANCE_COMMAND
        return serve(part(EngineSettings, given), part(ServerSettings, given), command, launch)
    except SettingsError as error:
        print(f"proxy: {error}", file=sys.stderr)
        return MISTAKE_STATUS


if __name__ == "__main__":
    sys.exit(run_command(main))

"""The engine process: `python -m engine.serving.instance --channel-fd N`, started by the server."""

import signal
import sys

from engine.core.command_line import OneSentenceParser


def main() -> int:
    """Serve one channel. Returns the exit status: 0 stopped, 1 broken, 2 settings that cannot be."""
    # A terminal's Ctrl-C reaches the whole group; this process is stopped by its channel alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    from engine.serving.channel_service import serve_channel

    parser = OneSentenceParser(prog="python -m engine.serving.instance")
    parser.add_argument("--channel-fd", type=int, required=True, help="socket the server speaks on")
    parser.add_argument("--name", default="engine", help="shown in listings of processes: prefill-0, decode-1")
    return serve_channel(parser.parse_args().channel_fd)


if __name__ == "__main__":
    sys.exit(main())

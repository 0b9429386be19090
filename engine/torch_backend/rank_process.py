"""A rank of a tensor-parallel group: `python -m engine.torch_backend.rank_process`, started by rank 0 alone."""

import os
import signal
import socket
import sys

from engine.core.command_line import OneSentenceParser


def main() -> int:
    """Serve rank 0. Returns the exit status: 0 told to leave, 2 a model that cannot be; 1 when rank 0 is gone."""
    # A terminal's Ctrl-C reaches the whole group; this process is stopped by rank 0 alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parser = OneSentenceParser(prog="python -m engine.torch_backend.rank_process")
    parser.add_argument("--control-fd", type=int, required=True, help="socket rank 0 speaks on")
    parser.add_argument("--words-fd", type=int, required=True, help="memory shared by the ranks")
    parser.add_argument("--cpu", type=int, help="CPU to run on")
    parser.add_argument("--name", default="rank", help="shown in listings of processes: rank-1")
    given = parser.parse_args()
    if given.cpu is not None:
        os.sched_setaffinity(0, {given.cpu})

    # Here, not at the top: torch starts threads at import, after this process was pinned.
    from engine.torch_backend.rank_channel import RankChannel
    from engine.torch_backend.rank_worker import serve

    return serve(RankChannel(socket.socket(fileno=given.control_fd)), given.words_fd)


if __name__ == "__main__":
    sys.exit(main())

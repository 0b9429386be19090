"""Another rank of a tensor-parallel group as rank 0 has it: its process, the connection to it, and how it ended."""

import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from engine.torch_backend.rank_channel import RankChannel
from engine.torch_backend.rank_messages import Ended, FromRank, Refused

REPOSITORY = Path(__file__).resolve().parents[2]
LEAVE_S = 5.0


class RankStartError(Exception):
    """A rank cannot start; the message is a sentence."""


@dataclass(slots=True)
class OtherRank:
    """A rank other than 0. ended: its answer to the last Run."""

    number: int
    process: subprocess.Popen[bytes]
    connection: RankChannel
    ended: Ended | None = None

    @staticmethod
    def start(number: int, words: int, cpu: int | None) -> "OtherRank":
        """Start its process. words: file descriptor of the group's shared memory. cpu: to run on; None: wherever."""
        ours, theirs = socket.socketpair()
        paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, "-m", "engine.torch_backend.rank_process", "--name", f"rank-{number}"]
        with theirs:
            command += ["--control-fd", str(theirs.fileno()), "--words-fd", str(words)]
            process = subprocess.Popen(
                command if cpu is None else [*command, "--cpu", str(cpu)],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), words),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        return OtherRank(number, process, RankChannel(ours))

    def expect(self, kind: type[FromRank]) -> None:
        """Wait for this answer. Raises RankStartError when it refuses, or ends."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError) as error:
            raise RankStartError(f"rank {self.number} {self.how_ended()} before it was ready") from error
        if isinstance(answer, Refused):
            raise RankStartError(answer.reason)
        assert isinstance(answer, kind)

    def how_ended(self) -> str:
        """Half a sentence, once its connection has ended."""
        try:
            status = self.process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"

    def end(self, longest_s: float) -> None:
        """Wait for its end, after a while by force."""
        try:
            self.process.wait(longest_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.connection.close()


def told(ended: Ended | None) -> str:
    """Half a sentence: where a rank is."""
    if ended is None:
        return "has not ended the task"
    return f"is at operator {ended.cursor}" if ended.failure is None else f"failed there ({ended.failure})"

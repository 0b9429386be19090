"""What every command (`python -m X`) does alike: a wrong command line, Ctrl-C, and a reader that left.

A command's module imports what is heavy inside its `main`, so that Ctrl-C during the imports is taken here, too.
"""

import argparse
import errno
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import NoReturn, TextIO

MISTAKE_STATUS = 2
"""Exit status after a user's mistake."""

INTERRUPTED_STATUS = 130
"""Exit status of a command that Ctrl-C ended: 128 and the signal's number, as shells count."""

READER_LEFT_STATUS = 141
"""Exit status when standard output's reader (`head`, a pager) has gone: 128 and SIGPIPE's number."""


OF_THE_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM}
    | {errno.EMFILE, errno.ENFILE, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR}
)
"""A full or read-only disk, no open file left, a place closed to the user: theirs to mend, no fault to be traced."""


class OneSentenceParser(argparse.ArgumentParser):
    """A wrong command line is one sentence and exit status 2; the usage lines are --help's."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, behind the command's last name."""
        self.exit(MISTAKE_STATUS, f"{self.prog.rpartition('.')[2]}: {message}\n")


def run_command(main: Callable[[], int]) -> int:
    """The exit status of `main`, or of how it was stopped; then nothing more can be said on a pipe nobody reads.

    What the machine lacks (OF_THE_MACHINE) is a sentence and MISTAKE_STATUS.
    """
    try:
        try:
            return main()
        finally:
            if sys.stdout is not None:  # it was closed before the command began
                sys.stdout.flush()
    except KeyboardInterrupt:
        # A second one, while Python ends, ends it at once and as silently.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _say_interrupted()
        return INTERRUPTED_STATUS
    except BrokenPipeError:
        left = [stream.fileno() for stream in (sys.stdout, sys.stderr) if stream is not None and _reader_left(stream)]
        if not left:
            raise  # another pipe's: a fault, to be seen
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in left:
            os.dup2(nowhere, descriptor)
        return READER_LEFT_STATUS
    except OSError as error:
        if error.errno not in OF_THE_MACHINE:
            raise
        # An error of standard output names no file.
        print(f"error: {error.strerror}{'' if error.filename is None else f': {error.filename}'}", file=sys.stderr)
        return MISTAKE_STATUS


def _say_interrupted() -> None:
    if sys.stderr is not None and not _reader_left(sys.stderr):
        print("interrupted", file=sys.stderr)


def _reader_left(stream: TextIO) -> bool:
    """Whether the stream goes into a pipe, or a socket, without a reader."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), select.POLLOUT)
    except OSError:  # no file behind it
        return False
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in poll.poll(0))

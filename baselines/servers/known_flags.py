"""Which flags a server knows: committed lists of the pinned versions, else its own --help."""

import difflib
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from baselines.servers.launch import LaunchError, ServerName, flag_names

LISTS = Path(__file__).with_name("flags")
HELP = {
    "vllm": ("-m", "vllm.entrypoints.openai.api_server", "--help=all"),
    "sglang": ("-m", "sglang.launch_server", "--help"),
}
HELP_DEADLINE_S = 300.0
_FLAG = re.compile(r"(?<![\w-])(--[a-z0-9][\w-]*)", re.IGNORECASE)


def refuse_unknown(flags: Sequence[str], known: frozenset[str], server: str) -> None:
    """Raise LaunchError for a flag the server does not know: its argument parser would tell only after a minute."""
    for name in flag_names(flags):
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise LaunchError(f"system.extra_flags: {server} has no flag {name}{hint}")


def known_flags(server: ServerName, version: str, python: str) -> frozenset[str]:
    """Flags of an installed version; a version without a committed list is asked, which takes it a minute.

    Raises LaunchError when it does not answer.
    """
    committed = LISTS / f"{server}-{version}.txt"
    if committed.is_file():
        return frozenset(committed.read_text(encoding="utf-8").split())
    return ask(server, python)


def ask(server: ServerName, python: str) -> frozenset[str]:
    """The flags in the server's own help. Raises LaunchError."""
    try:
        done = subprocess.run(
            [python, *HELP[server]], check=False, capture_output=True, text=True, timeout=HELP_DEADLINE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"cannot ask {server} for its flags: {error}") from error
    if done.returncode != 0:
        raise LaunchError(f"cannot ask {server} for its flags: it exited with code {done.returncode}")
    return flags_in(done.stdout)


def flags_in(help_text: str) -> frozenset[str]:
    """Every long flag a help text names, with underscores as dashes."""
    return frozenset(flag.replace("_", "-") for flag in _FLAG.findall(help_text))

"""What starts a rival's server, and the settings both rivals share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

ServerName = Literal["vllm", "sglang"]
ServerPolicy = Literal["fcfs", "priority"]


class LaunchError(ValueError):
    """A setting that a server cannot have; one sentence that names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """How a rival serves a model. Token counts are tokens as sent.

    model: a folder in Hugging Face format. served_model: the name clients ask for.
    policy: "priority" serves the most urgent SLO class first (see harness.loadgen.request_body), first come first
        served within it.
    chunk_tokens: token budget of one step of chunked prefill; None = the server's own default.
    kv_tokens: tokens the KV cache holds.
    dummy_weights: random weights, whatever the folder holds.
    extra_flags: passed on as they are, after the settings' own.
    """

    model: str
    served_model: str
    device: Literal["cpu", "cuda"]
    dtype: Literal["float32", "bfloat16", "float16"]
    policy: ServerPolicy
    max_context_tokens: int
    kv_tokens: int
    chunk_tokens: int | None = None
    prefix_cache: bool = False
    threads: int = 1
    dummy_weights: bool = False
    extra_flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """A command line and what it needs around it.

    arguments: after the interpreter; the port is added when it is known (`argv`).
    env: variables added to the caller's own.
    model_process: part of the title of the process that runs the model, so that it can get a core of its own.
    """

    server: ServerName
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    model_process: str

    def argv(self, python: str, port: int) -> tuple[str, ...]:
        """The whole command."""
        return (python, *self.arguments, "--port", str(port))


OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}
"""Environment of both: everything is on this machine, and nothing is reported to anyone."""


def flag_names(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags among command-line words, as `--name`: without value, underscores as dashes, without a dotted key.

    Raises LaunchError when the first word is none: a value needs its flag.
    """
    if flags and not flags[0].startswith("-"):
        raise LaunchError(f"system.extra_flags begins with {flags[0]!r}, which is no flag")
    found = []
    for word in flags:
        if not word.startswith("-") or _is_number(word):
            continue
        name = word.partition("=")[0]
        dashes = name[: len(name) - len(name.lstrip("-"))]
        found.append(dashes + name.lstrip("-").partition(".")[0].replace("_", "-"))
    return tuple(found)


def refuse_owned(flags: Sequence[str], owned: Mapping[str, str]) -> None:
    """Raise LaunchError for a flag that a setting of ours decides.

    owned: flag -> the setting.
    """
    for name in flag_names(flags):
        positive = name.replace("--no-", "--", 1)
        if name in owned or positive in owned:
            setting = owned.get(name) or owned[positive]
            raise LaunchError(f"system.extra_flags: {name} is decided by {setting}")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True

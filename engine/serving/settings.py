"""Settings of the engine process and of the HTTP process in front of it; to and from JSON and command lines."""

import argparse
import dataclasses
import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from engine.core.command_line import OneSentenceParser


class SettingsClass(Protocol):
    """A dataclass whose fields are made by `setting`."""

    __dataclass_fields__: ClassVar[dict[str, "dataclasses.Field[Any]"]]


Settings = TypeVar("Settings", bound=SettingsClass)


class SettingsError(Exception):
    """A setting the user gave cannot be; the message is one sentence naming it."""


def setting(default: Any, help_text: str, least: float | None = None, most: float | None = None) -> Any:
    """A dataclass field with what a command line shows and the range it accepts (ends included)."""
    return field(default=default, metadata={"help": help_text, "least": least, "most": most})


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Everything the engine process is built from. Token counts are effective tokens of the model served.

    Names of policies, batchings and the like are checked by `engine.serving.catalogue`.
    """

    model: str = setting("cpu_demo", "name of a built-in model shape (random weights), or a Hugging Face folder")
    dummy_weights: bool = setting(False, "random weights by seed for a folder too; only its config.json is read")
    weights_seed: int = setting(0, "seed of random weights", least=0, most=2**63 - 1)
    device: str = setting("auto", "auto, cpu or cuda; auto takes CUDA where torch finds it")
    dtype: str = setting("auto", "auto (what the model's config names), float32, bfloat16 or float16")
    attention: str = setting("auto", "attention kernel: auto (the best that works), or its name; CPUs: sdpa, avx512")
    policy: str = setting("s_edf", "order of prefills")
    batching: str = setting("slo_aware", "which waiting prefills start together")
    granularity: str = setting("operator", "where a prefill can stop")
    preempt: str = setting("pause", "what happens to the executing prefill when a more urgent one waits")
    predictor: str = setting("polynomial", "estimate of prefill time; operator_sum needs a profile")
    alpha: float = setting(0.1, "batching slo_aware: share of its SLO the head of a batch must keep", least=0, most=1)
    token_bound: int = setting(2048, "batchings slo_aware and token_limited: most tokens of a batch", least=1)
    chunk_tokens: int = setting(512, "batching chunked: most tokens of one step", least=1)
    tile_tokens: int = setting(512, "granularity tile: token rows of one tile", least=1)
    batch_deadline: str = setting("earliest_live", "deadline a batch is ordered by: head or earliest_live")
    profile: str = setting("", "operator timings the predictor is fitted to (JSON); none: measured at the start")
    tensor_parallel: int = setting(
        1, "ranks each prefill is computed by: a process each, on a CUDA device each", least=1, most=64
    )
    threads: int = setting(1, "torch threads on a CPU", least=1, most=1024)
    cuda_device: int = setting(
        0, "on CUDA: index of the device; further instances take the next ones, after the last the first", least=0
    )
    engine_cpu: int | None = setting(
        None, "pin the engine process to this CPU, further ranks or instances to the next ones", least=0
    )
    kv_blocks: int = setting(4096, "KV blocks in the pool", least=1, most=2**40)
    block_tokens: int = setting(16, "tokens of one KV block", least=1, most=2**20)
    max_context_tokens: int = setting(16384, "most tokens of a prompt and its output", least=2)
    max_preempted: int = setting(64, "most prefills preempted at one time", least=0)
    max_decode_batch: int = setting(256, "most requests of one decode step", least=1)
    decode_order: str = setting("last", "decode steps run when no prefill can (last), or by their TBT (by_deadline)")
    decode_reserve: float = setting(
        0.25, "decode order by_deadline: share of its TBT SLO at which a step becomes urgent", least=0, most=1
    )
    activation_bytes: int = setting(1 << 30, "memory that executing and preempted prefills may hold", least=1)
    launch_bound_us: int = setting(
        500, "on CUDA: microseconds of predicted work the host launches ahead; 0: each operator is waited for", least=0
    )
    watchdog_s: float = setting(
        30.0, "seconds one operator may take before /health says it hangs; 0: no limit", least=0
    )
    hand_over_folder: str = setting("", "folder for KV that instances hand over; none: this one hands none over")
    decision_log: str = setting("", "file the events and commands are logged to, for replay; none: not logged")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The HTTP process."""

    host: str = setting("127.0.0.1", "address to listen on; other than loopback opens the server to the network")
    port: int = setting(8000, "TCP port; 0 takes a free one and prints it", least=0, most=65535)
    server_cpu: int | None = setting(None, "pin the HTTP process to this CPU", least=0)
    api_key_env: str = setting("", "environment variable with the key clients must send as a bearer token; none: open")
    max_queue: int = setting(2048, "open requests beyond which new ones get a 503", least=1)
    max_body_bytes: int = setting(2_000_000, "largest request body", least=1)
    client_timeout_s: float = setting(
        30.0, "seconds a client may take over its body, or leave an answer unread", least=0.1
    )
    keep_alive_s: float = setting(75.0, "seconds a connection without a request is kept", least=0.1)
    drain_s: float = setting(5.0, "seconds that open requests get to end when the server is told to stop", least=0)


def parse_command_line(arguments: Sequence[str] | None = None) -> tuple[EngineSettings, ServerSettings]:
    """Both settings from flags (`--kv-blocks 4096`). A wrong flag ends the process: one sentence, exit code 2."""
    description = "OpenAI-compatible server over the FlowPrefill engine."
    parser = parser_of("engine.serving.server", description, {"engine": EngineSettings, "server": ServerSettings})
    given = vars(parser.parse_args(arguments))
    try:
        return part(EngineSettings, given), part(ServerSettings, given)
    except SettingsError as error:
        parser.error(str(error))


def parser_of(module: str, description: str, groups: Mapping[str, type[SettingsClass]]) -> OneSentenceParser:
    """A parser with a flag for each setting of each group."""
    parser = OneSentenceParser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    for group, kind in groups.items():
        _add_flags(parser.add_argument_group(group), kind)
    return parser


def part(kind: type[Settings], given: Mapping[str, object]) -> Settings:
    """Settings of one kind out of what a parser of several gave. Raises SettingsError."""
    return from_mapping(kind, {each.name: given[each.name] for each in dataclasses.fields(kind)})


def flags(settings: SettingsClass) -> list[str]:
    """The command-line flags that give these settings; those at their default are left out."""
    found: list[str] = []
    for each in dataclasses.fields(settings):
        value = getattr(settings, each.name)
        if value == each.default:
            continue
        found += [_flag(each.name)] if value is True else [_flag(each.name), str(value)]
    return found


def to_json(settings: EngineSettings | ServerSettings) -> str:
    """One JSON object, a key for each setting."""
    return json.dumps(dataclasses.asdict(settings))


def from_mapping(kind: type[Settings], given: Mapping[str, Any]) -> Settings:
    """Settings from names and values. Raises SettingsError: unknown name, wrong type, out of range."""
    known = {each.name: each for each in dataclasses.fields(kind)}
    for name, value in given.items():
        if name not in known:
            raise SettingsError(f"there is no setting {name!r}; known are {', '.join(known)}")
        _check(known[name], _types(kind)[name], value)
    return kind(**given)


def _check(each: "dataclasses.Field[Any]", wanted: tuple[type, ...], value: Any) -> None:
    accepted = (*wanted, int) if float in wanted else wanted
    if type(value) not in accepted:
        kinds = " or ".join("null" if kind is types.NoneType else kind.__name__ for kind in wanted)
        raise SettingsError(f"{each.name} must be {kinds}, got {value!r}")
    least, most = each.metadata["least"], each.metadata["most"]
    if value is None or isinstance(value, str | bool):
        return
    if not (least is None or value >= least) or not (most is None or value <= most) or value != value:
        span = f"at least {least}" if most is None else f"between {least} and {most}"
        raise SettingsError(f"{each.name} must be {span}, got {value}")


def _types(kind: type) -> dict[str, tuple[type, ...]]:
    hints = typing.get_type_hints(kind)
    return {name: typing.get_args(hint) or (hint,) for name, hint in hints.items()}


def _add_flags(group: Any, kind: type) -> None:
    for each in dataclasses.fields(kind):
        wanted = _types(kind)[each.name]
        text = each.metadata["help"]
        if wanted == (bool,):
            group.add_argument(_flag(each.name), action="store_true", help=text)
        else:
            group.add_argument(_flag(each.name), type=wanted[0], default=each.default, metavar="", help=text)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")

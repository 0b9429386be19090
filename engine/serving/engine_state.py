"""What an engine process tells about itself: once when it is ready, and whenever it is asked."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.core.record import EngineReport


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """A ready engine. folder: the model's files (tokenizer), "" for a built-in shape.

    max_context_tokens: the least of the setting, the model's positions and the KV pool.
    prefills: what the predictor is fitted to, as tokens of a whole prompt and seconds.
    """

    model: str
    folder: str
    vocab_size: int
    max_context_tokens: int
    kv_blocks: int
    block_tokens: int
    device: str
    predictor: str
    prefills: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class LiveState:
    """What the engine holds at this instant.

    handing_over: requests whose KV is about to come or to leave, or on its way.

    activation_bytes: reserved for the executing and the preempted tasks.
    """

    waiting: int
    executing: int
    preempted: int
    decoding: int
    kv_blocks_free: int
    kv_blocks_total: int
    activation_bytes: int
    handing_over: int = 0


@dataclass(frozen=True, slots=True)
class FrontState:
    """What the HTTP process knows of the engine without asking it.

    stalled: an operator, or the engine's whole process, hangs. stalls: how often an operator did.
    """

    open_requests: int
    stalled: bool
    stalls: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters since the last reset, and the present state."""

    report: EngineReport
    live: LiveState

    def to_json(self) -> dict[str, Any]:
        """Two objects, `report` and `live`."""
        return {"report": dataclasses.asdict(self.report), "live": dataclasses.asdict(self.live)}

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> "Snapshot":
        """The inverse of `to_json`."""
        report: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in given["report"].items()}
        return Snapshot(EngineReport(**report), LiveState(**given["live"]))

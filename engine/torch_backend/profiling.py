"""Measures prefill and operator times of a model on this machine.

The file holds `prefill` (whole prefills: new_tokens, context_tokens, seconds), which a TTFT predictor is fitted to, and
`operators` (one entry per operator kind and length: seconds of one such operator).
"""

import dataclasses
import os
import platform
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from engine.core.batch import Sequence as Share
from engine.core.batch import Task, TaskKind
from engine.model.catalogue import load_shape
from engine.model.granularity import Granularity, TileSettings
from engine.model.segments import segments_of
from engine.torch_backend.gate import Gate
from engine.torch_backend.kv_cache import KVCache
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.peers import Nobody, Peers
from engine.torch_backend.program import Operator, Program, plan_program
from engine.torch_backend.rank_messages import ModelChoice
from engine.torch_backend.sampling import SamplingSettings
from engine.torch_backend.settings import ExecutorSettings
from engine.torch_backend.split_model import load_ranks
from engine.torch_backend.task_state import build_state
from engine.torch_backend.tensor_parallel import RankGroup

BLOCK_TOKENS = 16

Lengths = tuple[int, int]
"""New tokens, and tokens in the cache before them."""

# fmt: off
LENGTHS = (
    1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280,
    1536, 1792, 2048, 2560, 3072, 3584, 4096, 4608, 5120, 6144, 8192, 10240, 12288, 14336, 16384, 20480,
)
CONTINUATIONS = (
    (16, 512), (64, 256), (64, 1024), (128, 128), (128, 512), (128, 2048), (256, 256), (256, 1024), (256, 3072),
    (512, 512), (512, 1536), (512, 4096), (1024, 1024), (1024, 3072), (2048, 8192), (4096, 12288),
)
OPERATOR_LENGTHS = (
    (1, 0), (4, 0), (8, 0), (16, 0), (32, 0), (64, 0), (96, 0), (128, 0), (192, 0), (256, 0), (384, 0), (512, 0),
    (768, 0), (1024, 0), (1536, 0), (2048, 0), (3072, 0), (4096, 0), (5120, 0), (8192, 0), (16384, 0),
    (1, 512), (1, 2048), (16, 512), (64, 256), (64, 1024), (128, 512), (128, 2048), (256, 1024), (256, 3072),
    (512, 1536), (512, 3072), (1024, 1024), (1024, 3072), (2048, 2048),
)
# fmt: on
"""(new_tokens, context_tokens) of what is measured, as far as `max_tokens` allows."""


class Bench:
    """Runs single prefills of one model; the KV of the context is what it is, its values change no time."""

    def __init__(
        self,
        model: Decoder,
        max_tokens: int,
        granularity: Granularity = Granularity.OPERATOR,
        tiles: TileSettings | None = None,
        peers: Peers | None = None,
    ) -> None:
        """peers: the other ranks of a split model; they plan with the granularity and tiles they were launched with."""
        self._model = model
        self._peers = peers or Nobody()
        self._tasks = 0
        self._tiles = tiles
        self._granularity = granularity
        self._cache = KVCache(model.shape, -(-max_tokens // BLOCK_TOKENS), BLOCK_TOKENS, model.device, model.dtype)
        self._cache.allocate("profiled", max_tokens)
        self._peers.allocate("profiled", max_tokens)
        for tensor in (*self._cache.keys, *self._cache.values):
            tensor.zero_()

    def prefill(
        self, new_tokens: int, context_tokens: int, granularity: Granularity | None = None
    ) -> Callable[[], None]:
        """One whole prefill, planning and reading the token back included, as the executor counts it.

        granularity: in place of the bench's own.
        """

        def run() -> None:
            program = self.program(new_tokens, context_tokens, granularity)
            self._run(program)
            assert program.state.sampled is not None
            program.state.sampled.tolist()

        return run

    def prefill_s(self, new_tokens: int, context_tokens: int) -> float:
        """Seconds of one whole prefill."""
        run = self.prefill(new_tokens, context_tokens)
        started_s = time.perf_counter()
        run()
        return time.perf_counter() - started_s

    def operators_s(self, new_tokens: int, context_tokens: int) -> Iterator[tuple[str, float]]:
        """Every operator with its seconds, one after the other.

        On CUDA by events between operators that are launched without waiting: where the device waits for the host, so
        does the operator's time.
        """
        program = self.program(new_tokens, context_tokens)
        names = [operator.name for operator in program.operators]
        seconds = self._device_seconds if self._model.device.type == "cuda" else self._host_seconds
        yield from zip(names, seconds(program), strict=True)

    def _host_seconds(self, program: Program) -> list[float]:
        stamps_s = [time.perf_counter()]
        self._run(_followed(program, lambda: stamps_s.append(time.perf_counter())))
        return [end_s - start_s for start_s, end_s in pairwise(stamps_s)]

    def _device_seconds(self, program: Program) -> list[float]:
        count = len(program.operators) + 1
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count)]  # type: ignore[no-untyped-call]
        left = iter(events)
        torch.cuda.synchronize(self._model.device)
        next(left).record()
        self._run(_followed(program, lambda: next(left).record()))
        torch.cuda.synchronize(self._model.device)
        return [start.elapsed_time(end) / 1e3 for start, end in pairwise(events)]

    def _run(self, program: Program) -> None:
        """On all ranks; the task is the one planned last."""
        self._peers.run(self._tasks, program, Gate(), None, lambda _: 0)
        self._peers.drop(self._tasks)

    def program(self, new_tokens: int, context_tokens: int, granularity: Granularity | None = None) -> Program:
        """One prefill, planned. granularity: in place of the bench's own."""
        self._tasks += 1
        task = Task(self._tasks, TaskKind.PREFILL, (Share("profiled", context_tokens, new_tokens),))
        tokens = [token % self._model.shape.vocab_size for token in range(new_tokens)]
        self._peers.plan(task, tokens)
        state = build_state(self._model.shape, self._cache, self._model.rope, segments_of(task), tokens)
        return plan_program(
            self._model, state, [(SamplingSettings(), None)], granularity or self._granularity, self._tiles
        )


def _followed(program: Program, after: Callable[[], object]) -> Program:
    """The same program; `after` is called when an operator has run."""

    def followed(operator: Operator) -> Operator:
        def run() -> None:
            operator.run()
            after()

        return dataclasses.replace(operator, run=run)

    return Program([followed(operator) for operator in program.operators], program.state)


def measure_prefills(
    bench: Bench, max_tokens: int, rounds: int, asked: Sequence[Lengths] | None = None
) -> list[dict[str, Any]]:
    """Median seconds of each length. asked: lengths in place of the usual ones.

    A round goes through all lengths, so that a slow spell of the machine hits one round and not one length; short
    prefills are cheap and get more samples.
    """
    points = [*((n, 0) for n in LENGTHS), *CONTINUATIONS] if asked is None else list(asked)
    points = [(new, context) for new, context in points if new + context <= max_tokens]
    samples: dict[tuple[int, int], list[float]] = defaultdict(list)
    for new, context in points:
        bench.prefill_s(new, context)
    for _ in range(rounds):
        for new, context in points:
            for _ in range(_repeats(new, context)):
                samples[new, context].append(bench.prefill_s(new, context))
    return [_entry(new, context, statistics.median(samples[new, context])) for new, context in points]


def measure_operators(
    bench: Bench, max_tokens: int, rounds: int, asked: Sequence[Lengths] | None = None
) -> list[dict[str, Any]]:
    """Median seconds of each operator kind, over layers and rounds; rounds go through all lengths, as for prefills."""
    points = [(new, context) for new, context in asked or OPERATOR_LENGTHS if new + context <= max_tokens]
    samples: dict[tuple[int, int], dict[str, list[float]]] = {point: defaultdict(list) for point in points}
    for new, context in points:
        for _ in bench.operators_s(new, context):
            pass  # the first run of a length allocates
    for _ in range(rounds):
        for new, context in points:
            for _ in range(_repeats(new, context)):
                for name, seconds in bench.operators_s(new, context):
                    samples[new, context][name.split(".")[-1]].append(seconds)
    return [
        {"operator": kind, **_entry(new, context, statistics.median(seconds))}
        for new, context in points
        for kind, seconds in samples[new, context].items()
    ]


def _repeats(new: int, context: int) -> int:
    """Short prefills are cheap and vary most."""
    return 5 if new + context <= 512 else 1


def _entry(new: int, context: int, seconds: float) -> dict[str, Any]:
    return {"new_tokens": new, "context_tokens": context, "seconds": round(seconds, 9)}


def profile(
    choice: ModelChoice, max_tokens: int, threads: int, rounds: int, ranks: int = 1, first_cpu: int | None = None
) -> dict[str, Any]:
    """The content of a profile file. ranks: the model is split over; first_cpu: rank r runs on CPU first_cpu + r.

    Raises ModelLoadError for a model that cannot be loaded.
    """
    torch.set_num_threads(threads)
    longest = min(max_tokens, load_shape(choice.name_or_folder).max_positions)
    executor = ExecutorSettings(
        Granularity.OPERATOR, kv_blocks=-(-longest // BLOCK_TOKENS), block_tokens=BLOCK_TOKENS, threads=threads
    )
    with load_ranks(choice, ranks, executor, _lost, first_cpu) as (model, peers):
        return profile_of(model, longest, rounds, peers=peers)


def _lost(reason: str) -> None:
    """The ranks cannot go on, and this one may wait for one of them for ever."""
    print(f"profile: {reason}", file=sys.stderr, flush=True)
    os._exit(1)


def profile_of(
    model: Decoder, max_tokens: int, rounds: int, asked: Sequence[Lengths] | None = None, peers: RankGroup | None = None
) -> dict[str, Any]:
    """The same of a model at hand. asked: lengths in place of the usual ones. peers: its other ranks."""
    with torch.inference_mode():
        bench = Bench(model, max_tokens, peers=peers)
        return {
            "model": model.shape.name,
            "device": _device_name(model.device),
            "dtype": str(model.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "attention": model.attention_kernel.name,
            "rounds": rounds,
            **({} if peers is None else {"tensor_parallel": peers.ranks}),
            "prefill": measure_prefills(bench, max_tokens, rounds, asked),
            "operators": measure_operators(bench, max_tokens, rounds, asked),
        }


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

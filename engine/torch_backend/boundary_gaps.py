"""Times between one possible stop of a task and the next: what the mean wait for a pause follows from."""

import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from engine.core.batch import Sequence as Share
from engine.core.batch import Task, TaskKind
from engine.core.clock import Clock
from engine.model.segments import segments_of
from engine.torch_backend.kv_cache import KVCache
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.program import plan_program
from engine.torch_backend.sampling import SamplingSettings
from engine.torch_backend.settings import ExecutorSettings
from engine.torch_backend.task_state import build_state


def boundary_gaps_ns(
    model: Decoder,
    settings: ExecutorSettings,
    clock: Clock,
    prompt: Sequence[int],
    chunk_tokens: int | None = None,
    rounds: int = 3,
) -> list[int]:
    """Execution time between stops, in order, of one prefill that nobody pauses; each the median of `rounds` runs.

    The first gap starts with the task's planning, as the executor counts it; a task's end is a stop.
    chunk_tokens: the prompt in chunks of so many tokens; None = in one task.
    Runs on a thread of its own, as the executor does, so that torch's settings of the caller stay as they are.
    """

    def measure() -> list[list[int]]:
        torch.set_num_threads(settings.threads)
        with torch.inference_mode():
            return [_one_run_ns(model, settings, clock, prompt, chunk_tokens) for _ in range(rounds)]

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="boundary-gaps") as own_thread:
        runs = own_thread.submit(measure).result()
    return [round(statistics.median(times)) for times in zip(*runs, strict=True)]


def _one_run_ns(
    model: Decoder, settings: ExecutorSettings, clock: Clock, prompt: Sequence[int], chunk_tokens: int | None
) -> list[int]:
    cache = KVCache(
        model.shape, -(-len(prompt) // settings.block_tokens), settings.block_tokens, model.device, model.dtype
    )
    cache.allocate("timed", len(prompt))
    step = chunk_tokens or len(prompt)
    gaps: list[int] = []
    for start in range(0, len(prompt), step):
        stop = min(start + step, len(prompt))
        began_ns = clock.now_ns()
        task = Task(0, TaskKind.PREFILL, (Share("timed", start, stop - start, last=stop == len(prompt)),))
        state = build_state(model.shape, cache, model.rope, segments_of(task), list(prompt[start:stop]))
        choices = [(SamplingSettings(), None)] if stop == len(prompt) else []
        program = plan_program(model, state, choices, settings.granularity, settings.tiles)
        for operator in program.operators:
            if operator.boundary:
                _settle(model)
                now_ns = clock.now_ns()
                gaps.append(now_ns - began_ns)
                began_ns = now_ns
            operator.run()
        if state.sampled is not None:
            state.sampled.tolist()
        _settle(model)
        gaps.append(clock.now_ns() - began_ns)
    return gaps


def _settle(model: Decoder) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)

"""The experiment `granularity`: the same prefills paused at random instants under every setting, in this process."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.core.clock import NS_PER_S, NS_PER_US
from engine.model.granularity import TileSettings
from engine.model.shape import ModelLoadError
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.settings import ExecutorSettings
from harness.assembly.effective import EffectiveTokens
from harness.assembly.reading import SettingsError, bounded
from harness.assembly.settings import PointSettings
from harness.experiments.machine import Cores, pinned
from harness.experiments.pause_study import PauseStudy, uniform_instants_ns
from harness.measurement.blocking import GranularityMeasurement
from workloads.length_scale import effective_tokens
from workloads.prompts import PromptSettings, make_prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class PausesSettings:
    """per_setting: pauses asked under each setting. prefills: prompts, spread evenly over the window's lengths.

    rounds: passes over the prompts that the pauses are spread over; as many passes without pauses give the throughput.
    """

    per_setting: int = bounded(at_least=1)
    prefills: int = bounded(at_least=1)
    rounds: int = bounded(at_least=1)


def even_lengths(lengths: Sequence[int], count: int) -> list[int]:
    """`count` of the lengths, at even quantiles: a mix like the whole."""
    ordered = sorted(lengths)
    return [ordered[int((i + 0.5) * len(ordered) / count)] for i in range(count)]


def measure_pauses(
    points: Sequence[PointSettings], lengths: Sequence[int], asked: PausesSettings, cores: Cores
) -> list[GranularityMeasurement]:
    """One measurement per point: same model, same prompts, same relative instants.

    lengths: input tokens of the window, in trace tokens. Rounds interleave: each goes through all points, so that a
    slow spell of the machine meets them alike. Raises SettingsError when the model cannot be loaded.
    """
    first = points[0]
    model = _load(first)
    scaled = [effective_tokens(n, first.model.length_scale) for n in even_lengths(lengths, asked.prefills)]
    prompts = make_prompts(scaled, PromptSettings(first.model.vocab_tokens, content="pauses"), first.load.seed)
    engine_core = None if cores.engine is None else frozenset({cores.engine})
    # The executor's thread inherits the core of the thread that makes it; this one then moves to the others.
    with pinned(engine_core):
        studies = [PauseStudy(model, _executor(point, max(scaled)), prompts, _chunk(point)) for point in points]
    try:
        with pinned(cores.others):
            return _interleaved(studies, asked, first.load.seed, engine_core)
    finally:
        for study in studies:
            study.close()


def _interleaved(
    studies: Sequence[PauseStudy], asked: PausesSettings, seed: int, engine_core: frozenset[int] | None
) -> list[GranularityMeasurement]:
    """Each round: a pass without pauses, one with, and the gaps between stops timed once, for every study."""
    blocking: list[list[int]] = [[] for _ in studies]
    executed_ns = [0 for _ in studies]
    gaps: list[list[list[int]]] = [[] for _ in studies]
    for study in studies:
        study.run()
    for round_number in range(asked.rounds):
        share = asked.per_setting // asked.rounds + (round_number < asked.per_setting % asked.rounds)
        for i, study in enumerate(studies):
            plain = study.run()
            executed_ns[i] += plain.executed_ns
            instants = uniform_instants_ns(share, plain.executed_ns, seed * 1000 + round_number)
            blocking[i] += study.run(instants).blocking_ns
            with pinned(engine_core):
                gaps[i].append(study.gaps_ns())
    return [
        GranularityMeasurement(
            blocking_ns=tuple(blocking[i]),
            prefill_tokens=study.tokens * asked.rounds,
            prefill_s=executed_ns[i] / NS_PER_S,
            check_interval_s=tuple(statistics.median(times) / NS_PER_S for times in zip(*gaps[i], strict=True)),
        )
        for i, study in enumerate(studies)
    ]


def _load(point: PointSettings) -> Decoder:
    model = point.model
    try:
        return load_model(model.checkpoint, point.device.kind, model.dtype, model.dummy_weights, model.weights_seed)
    except ModelLoadError as error:
        raise SettingsError(str(error)) from error


def _chunk(point: PointSettings) -> int | None:
    return EffectiveTokens.of(point).chunk_tokens if point.system.batching == "chunked" else None


def _executor(point: PointSettings, longest_tokens: int) -> ExecutorSettings:
    tile_tokens, bound_us = EffectiveTokens.of(point).tile_tokens, point.system.launch_bound_us
    chosen: dict[str, Any] = {}
    if tile_tokens is not None:
        chosen["tiles"] = TileSettings(tile_tokens, tile_tokens**2)
    if bound_us is not None:
        chosen["launch_bound_ns"] = bound_us * NS_PER_US
    return ExecutorSettings(
        granularity=point.system.granularity,  # type: ignore[arg-type]
        kv_blocks=2 + -(-longest_tokens // point.model.block_tokens),
        block_tokens=point.model.block_tokens,
        threads=point.device.threads,
        **chosen,
    )

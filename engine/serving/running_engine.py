"""Wiring of the engine process: model, executor, scheduler, driver, and the channel's two ends."""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

import torch

from engine.core.clock import NS_PER_US
from engine.model.granularity import Granularity, TileSettings
from engine.scheduling.decision_log import DecisionLog
from engine.scheduling.driver import Driver
from engine.scheduling.predictors.polynomial import PrefillSample
from engine.serving.channel import BlockingChannel
from engine.serving.engine_state import EngineDescription
from engine.serving.intake import ChannelSink, ForgettingEvents, Intake
from engine.serving.kv_files import KVFolder
from engine.serving.model_ranks import model_ranks
from engine.serving.scheduler_recipe import SchedulerRecipe
from engine.serving.settings import EngineSettings, SettingsError
from engine.serving.shared_memory_transport import SharedMemoryTransport
from engine.serving.shared_scheduler import SharedScheduler
from engine.serving.timings import Timings, read_timings
from engine.serving.warm_up import WarmUpError, warm_up, warm_up_lengths
from engine.torch_backend.clock import MonotonicClock
from engine.torch_backend.event_queue import EventQueue
from engine.torch_backend.executor import TorchExecutor
from engine.torch_backend.kv_cache import KVMemoryError
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.peers import Peers
from engine.torch_backend.settings import ExecutorSettings

LOG = logging.getLogger("engine")


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """An engine whose driver is ready to run."""

    description: EngineDescription
    intake: Intake
    events: EventQueue
    scheduler: SharedScheduler
    executor: TorchExecutor
    driver: Driver

    def run(self) -> None:
        """Drive until `stop`."""
        self.driver.run()

    def stop(self) -> None:
        """From any thread: the driver returns once it has handled what is pending."""
        self.events.close()


@contextmanager
def build(settings: EngineSettings, channel: BlockingChannel) -> Iterator[RunningEngine]:
    """Load, warm up and wire an engine; at the end the executor's thread is gone and the log is closed.

    Raises SettingsError with one sentence for what the user can mend.
    """
    with ExitStack() as held:
        log_file = _open_log(settings, held)
        torch.set_num_threads(settings.threads)
        executing = _executor_settings(settings)
        model, peers = held.enter_context(model_ranks(settings, executing, partial(_break, channel)))
        layers = model.shape.layers
        profile = read_timings(Path(settings.profile), layers) if settings.profile else None
        clock, events = MonotonicClock(), EventQueue()
        executor = _executor(model, executing, clock, events, peers)
        held.callback(executor.close)
        max_context_tokens = min(
            settings.max_context_tokens, model.shape.max_positions, settings.kv_blocks * settings.block_tokens
        )
        measured = _warm_up(executor, events, max_context_tokens, brief=profile is not None)
        recipe = SchedulerRecipe(
            settings,
            max_context_tokens,
            str(model.dtype).removeprefix("torch."),
            profile or Timings(layers, tuple(measured)),
        )
        scheduler = recipe.build(SharedScheduler, executor.activation_bytes)
        if settings.hand_over_folder:
            folder = KVFolder(Path(settings.hand_over_folder))
            executor.hand_over_by(SharedMemoryTransport(folder, os.getppid()), partial(_tell_sent, channel))
        description = EngineDescription(
            model=settings.model,
            folder=settings.model if Path(settings.model).is_dir() else "",
            vocab_size=model.shape.vocab_size,
            max_context_tokens=max_context_tokens,
            kv_blocks=settings.kv_blocks,
            block_tokens=settings.block_tokens,
            device=str(model.device),
            predictor=settings.predictor,
            prefills=tuple((one.new_tokens, one.seconds) for one in recipe.timings.prefills if one.context_tokens == 0),
        )
        log = DecisionLog(log_file, recipe.to_json()) if log_file else None
        source, sink = ForgettingEvents(events, executor), ChannelSink(channel, executor)
        driver = Driver(scheduler, executor, source, clock, sink, log)
        intake = Intake(channel, events, executor, clock, scheduler.snapshot)
        yield RunningEngine(description, intake, events, scheduler, executor, driver)


def _tell_sent(channel: BlockingChannel, request_id: str, ticket: str) -> None:
    with suppress(OSError):  # the proxy is gone; what was sent is freed as this engine ends
        channel.send({"kind": "sent", "request_id": request_id, "ticket": ticket})


def _break(channel: BlockingChannel, reason: str) -> None:
    """The ranks cannot go on, and the executing thread may wait for one of them for ever: only the end is left."""
    LOG.error("the engine broke: %s", reason)
    with suppress(OSError):  # the server is gone: nobody to tell
        channel.send({"kind": "died", "reason": reason})
    os._exit(1)


def _open_log(settings: EngineSettings, held: ExitStack) -> TextIO | None:
    if not settings.decision_log:
        return None
    try:
        return held.enter_context(Path(settings.decision_log).open("w", encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"--decision-log {settings.decision_log}: cannot be written ({error.strerror})") from error


def _executor_settings(settings: EngineSettings) -> ExecutorSettings:
    return ExecutorSettings(
        granularity=Granularity(settings.granularity),
        tiles=TileSettings(rows=settings.tile_tokens, pairs=settings.tile_tokens**2),
        kv_blocks=settings.kv_blocks,
        block_tokens=settings.block_tokens,
        threads=settings.threads,
        launch_bound_ns=settings.launch_bound_us * NS_PER_US,
    )


def _executor(
    model: Decoder, settings: ExecutorSettings, clock: MonotonicClock, events: EventQueue, peers: Peers | None
) -> TorchExecutor:
    try:
        return TorchExecutor(model, settings, clock, events.put, peers)
    except KVMemoryError as error:
        raise SettingsError(f"--kv-blocks: {error}") from error


def _warm_up(executor: TorchExecutor, events: EventQueue, most_tokens: int, brief: bool) -> list[PrefillSample]:
    """brief: a profile has the timings, three lengths suffice to have everything warm."""
    lengths = warm_up_lengths(most_tokens - 1)
    if brief:
        lengths = lengths[:: max(1, len(lengths) // 3)][:3]
    try:
        samples = warm_up(executor, events, lengths, executor.model.shape.vocab_size)
    except WarmUpError as error:
        raise SettingsError(f"the model cannot run with these settings: {error}") from error
    for sample in samples:
        LOG.info("warm-up: %d tokens in %.1f ms", sample.new_tokens, 1e3 * sample.seconds)
    return samples

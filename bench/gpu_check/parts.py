"""The parts in their order, and the large model that most of them share."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from bench.gpu_check.blocking import measure_bounds, measure_granularities
from bench.gpu_check.goodput import measure_goodput
from bench.gpu_check.memory import check_memory
from bench.gpu_check.parity import check_parity
from bench.gpu_check.pausing import check_pausing, check_waiting
from bench.gpu_check.report import Report
from bench.gpu_check.scale import Setting
from bench.gpu_check.throughput import compare_transformers, measure_checks
from bench.gpu_check.timings import measure_timings
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.decoder import Decoder

Part = Callable[[Report], None]


class _Shared:
    """What one part leaves to the next."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._model: Decoder | None = None
        self.profile: Path | None = None

    def model(self) -> Decoder:
        """The large model: random weights, made where they stay."""
        if self._model is None:
            scale = self._setting.scale
            self._model = load_model(scale.model, scale.device, scale.dtype)
        return self._model

    def release(self) -> None:
        """The servers need the memory."""
        self._model = None
        gc.collect()
        if self._setting.scale.device == "cuda":
            torch.cuda.empty_cache()


def parts_of(setting: Setting) -> Iterator[tuple[str, Part]]:
    """Name and what to run; to be run in this order, each before the next is asked for."""
    shared = _Shared(setting)

    def timings(report: Report) -> None:
        shared.profile = measure_timings(setting, report, shared.model())

    def goodput(report: Report) -> None:
        if shared.profile is None:
            raise RuntimeError("the profile it needs was not measured")
        measure_goodput(setting, report, shared.profile)

    yield "parity", lambda report: check_parity(setting, report)
    yield "waiting", lambda report: check_waiting(setting, report)
    yield "pausing", lambda report: check_pausing(setting, report, shared.model())
    yield "timings", timings
    yield "checks", lambda report: measure_checks(setting, report, shared.model())
    yield "memory", lambda report: check_memory(setting, report, shared.model())
    yield "granularity", lambda report: measure_granularities(setting, report, shared.model())
    yield "launch bounds", lambda report: measure_bounds(setting, report, shared.model())
    yield "transformers", lambda report: compare_transformers(setting, report, shared.model())
    shared.release()
    yield "goodput", goodput

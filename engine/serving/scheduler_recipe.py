"""Everything a scheduler is made of, as plain data: kept in the decision log, so that a replay makes the same one."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from engine.core.batch import Task
from engine.scheduling.scheduler import Scheduler, SchedulerSettings
from engine.serving.catalogue import build_batching, build_policy, build_predictor, check
from engine.serving.settings import EngineSettings, from_mapping
from engine.serving.timings import Timings

AnyScheduler = TypeVar("AnyScheduler", bound=Scheduler)


@dataclass(frozen=True, slots=True)
class SchedulerRecipe:
    """settings: as the user gave them. timings: what the predictor is fitted to. dtype: of the model's activations."""

    settings: EngineSettings
    max_context_tokens: int
    dtype: str
    timings: Timings

    def build(self, kind: type[AnyScheduler], activation_bytes: Callable[[Task], int]) -> AnyScheduler:
        """A fresh scheduler. Raises SettingsError for names that are not known, or timings that do not suffice."""
        settings = self.settings
        check(settings)
        return kind(
            build_policy(settings),
            build_batching(settings),
            build_predictor(settings, self.timings),
            SchedulerSettings(
                kv_blocks=settings.kv_blocks,
                block_tokens=settings.block_tokens,
                activation_capacity_bytes=settings.activation_bytes,
                max_context_tokens=self.max_context_tokens,
                max_preempted=settings.max_preempted,
                max_decode_batch=settings.max_decode_batch,
                batch_deadline="head" if settings.batch_deadline == "head" else "earliest_live",
                decode_order="by_deadline" if settings.decode_order == "by_deadline" else "last",
                decode_reserve=settings.decode_reserve,
            ),
            activation_bytes,
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> "SchedulerRecipe":
        """The inverse of `to_json`. Raises KeyError, TypeError or SettingsError for what is none."""
        return SchedulerRecipe(
            settings=from_mapping(EngineSettings, given["settings"]),
            max_context_tokens=given["max_context_tokens"],
            dtype=given["dtype"],
            timings=Timings.from_json(given["timings"]),
        )

"""A few prefills before the first request: they warm the process up, and time it where no profile is given."""

import time
from collections.abc import Sequence as Items

from engine.core.batch import Sequence, Task, TaskKind
from engine.core.clock import ns_to_seconds
from engine.core.commands import ReleaseKV, Start
from engine.core.events import Completion, Failed, KVReleased
from engine.scheduling.predictors.polynomial import PrefillSample
from engine.torch_backend.event_queue import EventQueue
from engine.torch_backend.executor import TorchExecutor
from engine.torch_backend.payload import Payload

SHORTEST_TOKENS = 16
LONGEST_TOKENS = 4096
BUDGET_S = 4.0
LEAST_SAMPLES = 4


class WarmUpError(Exception):
    """A prefill of the warm-up failed; the message is a sentence."""


def warm_up_lengths(most_tokens: int) -> tuple[int, ...]:
    """A dozen prompt lengths, each 1.65 times the one before, up to the longest that fits."""
    longest = min(LONGEST_TOKENS, most_tokens)
    shortest = min(SHORTEST_TOKENS, longest)
    count = 12
    lengths = (round(shortest * (longest / shortest) ** (i / (count - 1))) for i in range(count))
    return tuple(sorted(set(lengths)))


def warm_up(
    executor: TorchExecutor, events: EventQueue, lengths: Items[int], vocab_size: int, budget_s: float = BUDGET_S
) -> list[PrefillSample]:
    """Run prompts of these lengths, shortest first, until the time is up (but four);
    the faster of two runs of each counts.

    Before the driver runs: nobody else may submit or wait for events. Leaves no KV held.
    """
    samples: list[PrefillSample] = []
    end_s = time.monotonic() + budget_s
    for length in lengths:
        seconds = min(_prefill_s(executor, events, length, vocab_size) for _ in range(2))
        samples.append(PrefillSample(length, 0, seconds))
        if len(samples) >= LEAST_SAMPLES and time.monotonic() > end_s:
            break
    return samples


def _prefill_s(executor: TorchExecutor, events: EventQueue, length: int, vocab_size: int) -> float:
    request_id = "warm-up"
    executor.register(request_id, Payload(tuple(i * 7919 % vocab_size for i in range(length))))
    # The scheduler numbers its tasks from 0 upwards.
    executor.submit([Start(Task(-1, TaskKind.PREFILL, (Sequence(request_id, 0, length),)))])
    seconds = 0.0
    released = False
    while not released:
        for event in events.wait():
            match event:
                case Completion(executed_ns=executed_ns):
                    seconds = ns_to_seconds(executed_ns)
                    executor.submit([ReleaseKV(request_id)])
                case Failed(reason=reason):
                    raise WarmUpError(f"a prefill of {length} tokens failed: {reason}")
                case KVReleased():
                    released = True
                case _:
                    raise WarmUpError(f"{type(event).__name__} came in the warm-up, which nobody asked for")
    executor.forget(request_id)
    return seconds

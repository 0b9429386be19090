"""A CUDA device that is none: what torch is asked to put there stays on the CPU, and events are stamps of the host.

Everything that is launched is over at once, so that no time means anything; what runs is the code for a GPU.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("cuda:0")


class Event:
    """As torch.cuda.Event."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.enable_timing = enable_timing
        self.at_ns = 0

    def record(self) -> None:
        self.at_ns = time.perf_counter_ns()

    def synchronize(self) -> None:
        assert self.at_ns

    def query(self) -> bool:
        assert self.at_ns
        return True

    def elapsed_time(self, end_event: "Event") -> float:
        assert self.enable_timing
        assert end_event.enable_timing
        return (end_event.at_ns - self.at_ns) / 1e6


class OnTheCPU(TorchFunctionMode):
    """Whatever names the device is given the CPU."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        return func(*map(_here, args), **{name: _here(value) for name, value in (kwargs or {}).items()})


def _here(value: Any) -> Any:
    named = isinstance(value, torch.device | str) and str(value).startswith("cuda")
    return torch.device("cpu") if named else value


def allocated_bytes(*_: object) -> int:
    """Of all tensors that are alive, each piece of memory once: what an allocator would say, counted otherwise."""
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    tensors = [each for each in tensors if not each.is_mkldnn]  # of other tests; their memory is not torch's
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())


@contextmanager
def stand_in(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] = (9, 0)) -> Iterator[list[str]]:
    """Yields what the debug mode of synchronisation was set to, in order."""
    debug_modes: list[str] = []
    for name, stand in {
        "Event": Event,
        "is_available": lambda: True,
        "set_device": lambda _: None,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "get_device_name": lambda *_: "stand-in",
        "get_device_capability": lambda *_: capability,
        "memory_allocated": allocated_bytes,
        "max_memory_allocated": allocated_bytes,
        "reset_peak_memory_stats": lambda *_: None,
        "set_sync_debug_mode": debug_modes.append,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand)
    gc.collect()
    gc.disable()  # what is counted must not go away by chance
    try:
        with OnTheCPU():
            yield debug_modes
    finally:
        gc.enable()

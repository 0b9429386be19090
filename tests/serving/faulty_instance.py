"""A real engine process with faults in it, which the first token of a prompt, or its length, sets off.

Its ledgers are checked after every scheduling call: a broken invariant ends the engine.
"""

import argparse
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from engine.core.events import Event
from engine.scheduling.driver import Driver
from engine.serving.channel_service import serve_channel
from engine.torch_backend.executor import TorchExecutor
from engine.torch_backend.kv_cache import KVCache
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.payload import LiveRequest, Payload
from engine.torch_backend.task_state import TaskState

BROKEN_OPERATOR, NO_MEMORY, HANG, HANG_WITH_INTERPRETER, NO_MEMORY_FOR_TOKENS = 70, 71, 72, 73, 74
BLOCKS_WITHOUT_TABLE = 13
"""A request of so many KV blocks gets none: no memory for their index. The warm-up asks for other numbers."""
END_OF_HANG = "END_OF_HANG"
"""Environment variable: a named pipe; an operator hangs until something is written to it."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel-fd", type=int, required=True)
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    put_faults_in()
    return serve_channel(arguments.channel_fd)


def put_faults_in() -> None:
    attention, table_of, of = Decoder.attention, KVCache._table_of, LiveRequest.of

    def faulty_attention(self: Decoder, layer: int, state: TaskState, *spans_and_lengths: object) -> None:
        if layer == 1:
            FAULTS.get(int(state.token_ids[0]), lambda: None)()
        attention(self, layer, state, *spans_and_lengths)

    def faulty_table_of(self: KVCache, blocks: tuple[int, ...]) -> object:
        if len(blocks) == BLOCKS_WITHOUT_TABLE:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.\nframe #0: somewhere")
        return table_of(self, blocks)

    def faulty_of(payload: Payload, device: torch.device) -> LiveRequest:
        if payload.token_ids[0] == NO_MEMORY_FOR_TOKENS:
            raise MemoryError("no room for a generator")
        return of(payload, device)

    Decoder.attention = faulty_attention
    KVCache._table_of = faulty_table_of
    LiveRequest.of = staticmethod(faulty_of)
    Driver.step = checked(Driver.step)


def checked(step: Callable[[Driver, Sequence[Event]], None]) -> Callable[[Driver, Sequence[Event]], None]:
    """The driver's step, with the ledgers' checks after it."""

    def checked_step(self: Driver, events: Sequence[Event]) -> None:
        step(self, events)
        self._scheduler.check()
        assert isinstance(self._executor, TorchExecutor)
        self._executor.check()

    return checked_step


def broken() -> None:
    raise ZeroDivisionError("the kernel gave up")


def no_memory() -> None:
    torch.empty(1 << 60, dtype=torch.uint8)


def hang_with_interpreter() -> None:
    """PyDLL keeps the interpreter's lock: no other thread of the process runs meanwhile."""
    pipe = ctypes.PyDLL(None).open(os.environ[END_OF_HANG].encode(), os.O_RDONLY)
    os.close(pipe)


FAULTS: dict[int, Callable[[], object]] = {
    BROKEN_OPERATOR: broken,
    NO_MEMORY: no_memory,
    HANG: lambda: Path(os.environ[END_OF_HANG]).read_bytes(),
    HANG_WITH_INTERPRETER: hang_with_interpreter,
}

if __name__ == "__main__":
    sys.exit(main())

"""KV handed over between processes of one machine: `engine.torch_backend.kv_transport.KVTransport` in shared memory.

A file is the length of its header (8 bytes), the header (JSON: the layout and the sampler's length), and from the
next multiple of 64 bytes on the keys and values of each layer, then the sampler.
"""

import dataclasses
import itertools
import json
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from engine.serving.kv_files import KVFolder
from engine.torch_backend.kv_transport import KVHandOverError, KVLayout, LayerKV, ReceivedKV

_LENGTH = struct.Struct("<Q")
_ALIGNED = 64


class SharedMemoryTransport:
    """One side of the hand-over. proxy_pid: of the process that frees what is sent here; part of the names."""

    def __init__(self, folder: KVFolder, proxy_pid: int) -> None:
        self._folder = folder
        self._proxy_pid = proxy_pid
        self._numbers = itertools.count()

    def send(self, layout: KVLayout, layers: Iterable[LayerKV], sampler: bytes, to: str) -> str:
        """Copy the KV into a new file; any process of this machine can receive it, whatever `to` says."""
        del to
        header = json.dumps({**dataclasses.asdict(layout), "sampler_bytes": len(sampler)}).encode()
        start = _payload_start(len(header))
        size = start + layout.size_bytes + len(sampler)
        try:
            name, memory = self._folder.create(self._proxy_pid, os.getpid(), next(self._numbers), size)
        except OSError as error:
            raise KVHandOverError(
                f"no room for {size:,} bytes of KV in {self._folder.path} ({error.strerror})"
            ) from error
        try:
            _LENGTH.pack_into(memory, 0, len(header))
            memory[_LENGTH.size : _LENGTH.size + len(header)] = header
            for (into_keys, into_values), (keys, values) in zip(_layers(memory, start, layout), layers, strict=True):
                into_keys.copy_(keys)
                into_values.copy_(values)
            memory[size - len(sampler) :] = sampler
        except BaseException:
            self._folder.unlink(name)
            raise
        return name

    @contextmanager
    def receive(self, ticket: str, layout: KVLayout) -> Iterator[ReceivedKV]:
        """The file's KV, in place."""
        try:
            memory = self._folder.open(ticket)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise KVHandOverError(f"the KV handed over as {ticket} cannot be read ({reason})") from error
        start, sampler_bytes = _checked(memory, layout, ticket)
        yield ReceivedKV(_layers(memory, start, layout), memory[len(memory) - sampler_bytes :])

    def free(self, ticket: str) -> None:
        """Unlink the file."""
        self._folder.unlink(ticket)

    def close(self) -> None:
        """Unlink what this process sent and nobody freed."""
        own = f"-{self._proxy_pid}-{os.getpid()}-"
        for name in self._folder.names():
            if own in name:
                self._folder.unlink(name)


def _payload_start(header_bytes: int) -> int:
    return -(-(_LENGTH.size + header_bytes) // _ALIGNED) * _ALIGNED


def _layers(memory: mmap.mmap, start: int, layout: KVLayout) -> Iterator[LayerKV]:
    """Tensors over the memory, one layer after the other."""
    shape = layout.layer_shape
    count = shape[0] * shape[1] * shape[2]
    step = count * layout.torch_dtype.itemsize
    for layer in range(layout.layers):
        at = start + 2 * layer * step
        keys, values = (
            torch.frombuffer(memory, dtype=layout.torch_dtype, count=count, offset=offset).view(shape)
            for offset in (at, at + step)
        )
        yield keys, values


def _checked(memory: mmap.mmap, layout: KVLayout, ticket: str) -> tuple[int, int]:
    """Where the payload starts, and the sampler's length. Raises KVHandOverError for what is not as expected."""
    try:
        (header_bytes,) = _LENGTH.unpack_from(memory, 0)
        header = json.loads(memory[_LENGTH.size : _LENGTH.size + header_bytes])
        sampler_bytes = header.pop("sampler_bytes")
        found = KVLayout(**header)
    except (struct.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise KVHandOverError(f"the KV handed over as {ticket} is damaged ({error!r})") from error
    if found != layout:
        raise KVHandOverError(f"the KV handed over as {ticket} is {found}, {layout} is expected")
    start = _payload_start(header_bytes)
    if len(memory) != start + layout.size_bytes + sampler_bytes:
        raise KVHandOverError(f"the KV handed over as {ticket} has {len(memory)} bytes, which is not what it says")
    return start, sampler_bytes

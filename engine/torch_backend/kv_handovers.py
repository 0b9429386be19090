"""Hand-overs of KV, on a thread beside the executing one: a send reads a request's blocks, a receive fills them."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

import torch

from engine.core.batch import Task, TaskKind
from engine.model.shape import ModelShape
from engine.torch_backend.kv_cache import KVCache
from engine.torch_backend.kv_transport import KVHandOverError, KVLayout, KVTransport
from engine.torch_backend.payload import LiveRequest

log = logging.getLogger(__name__)

Ended = Callable[[Task, str | None], None]
"""Told of a hand-over's end, with a sentence when it failed."""


class KVHandOvers:
    """One hand-over at a time, in the order of `begin`.

    on_sent: told the request and its ticket, before `ended`. Both are called on the thread of the hand-overs.
    """

    def __init__(
        self,
        shape: ModelShape,
        cache: KVCache,
        device: torch.device,
        dtype: torch.dtype,
        transport: KVTransport,
        on_sent: Callable[[str, str], None],
        ended: Ended,
    ) -> None:
        self._shape, self._device, self._dtype = shape, device, dtype
        self._cache = cache
        self._transport = transport
        self._on_sent = on_sent
        self._ended = ended
        self._asked: SimpleQueue[tuple[Task, LiveRequest] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="kv hand-overs", daemon=True)
        self._thread.start()

    def begin(self, task: Task, request: LiveRequest) -> None:
        """A hand-over's turn comes after those before it."""
        self._asked.put((task, request))

    def close(self) -> None:
        """End the thread after the hand-over on its way, and free what was sent and is wanted no more."""
        self._asked.put(None)
        self._thread.join()
        self._transport.close()

    def _serve(self) -> None:
        # A stream of its own: a copy waits for no operator, and no operator for a copy.
        stream = _stream(self._device)
        with torch.inference_mode(), torch.cuda.stream(stream):
            while (asked := self._asked.get()) is not None:
                self._hand_over(*asked, stream)

    def _hand_over(self, task: Task, request: LiveRequest, stream: torch.cuda.Stream | None) -> None:
        move = self._send if task.kind is TaskKind.KV_SEND else self._receive
        try:
            move(task, request)
            if stream is not None:
                stream.synchronize()
        except KVHandOverError as error:
            self._ended(task, str(error))
        except Exception as error:
            # Whatever breaks in a hand-over fails its request, never the thread.
            log.exception("the hand-over of task %d failed", task.task_id)
            self._ended(task, f"{type(error).__name__}: {error}")
        else:
            self._ended(task, None)

    def _send(self, task: Task, request: LiveRequest) -> None:
        request_id, tokens = task.sequences[0].request_id, task.sequences[0].context_tokens
        layers = (self._cache.read(layer, request_id, tokens) for layer in range(self._shape.layers))
        sampler = b"" if request.generator is None else request.generator.get_state().numpy().tobytes()
        ticket = self._transport.send(self._layout(tokens), layers, sampler, request.destination)
        self._on_sent(request_id, ticket)

    def _receive(self, task: Task, request: LiveRequest) -> None:
        request_id, tokens = task.sequences[0].request_id, task.sequences[0].context_tokens
        with self._transport.receive(request.ticket, self._layout(tokens)) as received:
            for layer, (keys, values) in enumerate(received.layers):
                self._cache.write(layer, request_id, keys, values)
            if request.generator is not None and received.sampler:
                request.generator.set_state(torch.frombuffer(bytearray(received.sampler), dtype=torch.uint8))

    def _layout(self, tokens: int) -> KVLayout:
        return KVLayout.of(self._shape, tokens, self._dtype)


def _stream(device: torch.device) -> torch.cuda.Stream | None:
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

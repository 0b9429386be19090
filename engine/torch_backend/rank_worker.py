"""A rank other than 0: it does with its part of the model what rank 0 does, and stops where rank 0 agrees to stop."""

import logging
import os
import queue
import threading
import time
from collections.abc import MutableSequence

import torch

from engine.model.segments import segments_of
from engine.model.shape import ModelLoadError
from engine.torch_backend.kv_cache import KVCache, KVMemoryError
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.models.shard import Shard
from engine.torch_backend.operator_times import OperatorTimes
from engine.torch_backend.program import Program, plan_program
from engine.torch_backend.rank_channel import RankChannel
from engine.torch_backend.rank_link import all_reduce, device_of, join_group, leave_group, map_words, remove_store
from engine.torch_backend.rank_messages import (
    Allocate,
    Drop,
    Ended,
    Free,
    FromRank,
    Hello,
    Join,
    Leave,
    Plan,
    Ready,
    Refused,
    Run,
    ToRank,
)
from engine.torch_backend.rank_stop import FollowerStop, run_in_step
from engine.torch_backend.sampling import SamplingSettings
from engine.torch_backend.settings import new_window
from engine.torch_backend.task_state import build_state

LOG = logging.getLogger("rank")


def serve(connection: RankChannel, words_descriptor: int) -> int:
    """Obey rank 0 until it says to leave. Returns the exit status: 0 told to leave, 2 refused, 1 rank 0 is gone."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        return _serve(connection, words_descriptor)
    except (EOFError, ConnectionError):
        return 1  # nobody to tell


def _serve(connection: RankChannel, words_descriptor: int) -> int:
    join = connection.recv()
    assert isinstance(join, Join)
    inbox: queue.SimpleQueue[ToRank | FromRank] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox, join), name="reader", daemon=True).start()
    torch.set_num_threads(join.executor.threads)
    connection.send(Hello())
    join_group(join.model.device, join.rank, join.ranks, join.store)
    try:
        worker = RankWorker(join, map_words(words_descriptor, join.ranks))
    except (ModelLoadError, KVMemoryError) as error:
        connection.send(Refused(str(error)))
        return 2
    connection.send(Ready())
    with torch.inference_mode():
        while not isinstance(message := inbox.get(), Leave):
            if (ended := worker.obey(message)) is not None:
                connection.send(ended)
    leave_group()
    return 0


def _read(connection: RankChannel, inbox: "queue.SimpleQueue[ToRank | FromRank]", join: Join) -> None:
    """A thread of its own: it must hear of rank 0's end also while an operator waits for it."""
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        _remove_after_us(join.store)
        os._exit(1)


def _remove_after_us(store: str) -> None:
    """Rank 0 could not remove the store, and torch, in this process's other thread, may write it anew or wait for it
    with the interpreter's lock: a child takes it away once this process is gone."""
    dying = os.getpid()
    if os.fork() == 0:
        while os.getppid() == dying:
            time.sleep(0.01)
        remove_store(store)
        os._exit(0)


class RankWorker:
    """The tasks and the KV of one rank."""

    def __init__(self, join: Join, words: MutableSequence[int]) -> None:
        choice, settings = join.model, join.executor
        self._rank, self._words, self._settings = join.rank, words, settings
        self._model: Decoder = load_model(
            choice.name_or_folder,
            device_of(choice.device, join.rank),
            choice.dtype,
            choice.dummy,
            choice.seed,
            Shard(join.rank, join.ranks),
            all_reduce,
            choice.attention,
        )
        model = self._model
        self._cache = KVCache(model.shape, settings.kv_blocks, settings.block_tokens, model.device, model.dtype)
        self._times = OperatorTimes(settings.device_flops_per_s)
        self._tasks: dict[int, Program | Exception] = {}

    def obey(self, message: ToRank | FromRank) -> Ended | None:
        """Do what rank 0 did, or does; the answer to Run."""
        match message:
            case Allocate(request_id, tokens):
                self._cache.allocate(request_id, tokens)
            case Free(request_id):
                self._cache.free(request_id)
            case Plan():
                self._tasks[message.task.task_id] = self._plan(message)
            case Drop(task_id):
                self._tasks.pop(task_id, None)
            case Run(task_id):
                return self._run(task_id)
            case _:
                raise ValueError(f"{type(message).__name__} came to a rank at work")
        return None

    def _plan(self, message: Plan) -> Program | Exception:
        segments, settings = segments_of(message.task), self._settings
        # Rank 0 samples and tells the tokens with the next task: what is chosen here is never read.
        choices = [(SamplingSettings(), None) for segment in segments if segment.last]
        try:
            state = build_state(self._model.shape, self._cache, self._model.rope, segments, message.token_ids.tolist())
            return plan_program(self._model, state, choices, settings.granularity, settings.tiles)
        except Exception as error:
            LOG.exception("task %d cannot be planned", message.task.task_id)
            return error  # told when it is to run: rank 0 may have failed likewise, and not ask for it

    def _run(self, task_id: int) -> Ended:
        program = self._tasks[task_id]
        if isinstance(program, Exception):
            return Ended(0, f"{type(program).__name__}: {program}")
        side = FollowerStop(self._words, self._rank)
        window = new_window(self._model.device, self._settings, self._times)
        try:
            run_in_step(program, side, window, self._times.predicted_ns)
        except Exception as error:
            # Whatever breaks in an operator is for rank 0 to judge: it may have broken everywhere.
            LOG.exception("task %d failed", task_id)
            return Ended(program.cursor, f"{type(error).__name__}: {error}")
        return Ended(program.cursor, None)

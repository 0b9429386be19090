"""Simulations side by side, one process each; a process that dies costs the point it was at, no other."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

Job = TypeVar("Job")
Found = TypeVar("Found")

AHEAD = 2
"""Jobs handed out per process, so that none waits for the next."""


class Died:
    """What came of a job whose process ended under it (killed, or out of memory)."""


def side_by_side(
    work: Callable[[Job], Found], jobs: Sequence[Job], workers: int, stopped: Callable[[], bool]
) -> Iterator[tuple[Job, Found | Died]]:
    """Each job with its outcome, as they end. Once `stopped`, none begins; those under way end.

    work: a function of a module, run in a fresh process with one thread for numbers. What it raises is raised here.
    """
    left = deque(jobs)
    while left and not stopped():
        under_way: dict[Future[Found], Job] = {}
        try:
            with _processes(min(workers, len(left))) as pool:
                while under_way or (left and not stopped()):
                    while left and len(under_way) < AHEAD * workers and not stopped():
                        with _interrupts_held():
                            under_way[pool.submit(work, left[0])] = left[0]
                        left.popleft()
                    ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
                    for future in ended:
                        found = future.result()
                        yield under_way.pop(future), found
        except BrokenProcessPool:
            # Which of them killed its process is not known: each gets one of its own.
            for job in under_way.values():
                if stopped():
                    return
                yield job, _alone(work, job)


def stop_at_once() -> None:
    """End the processes under way; their jobs are lost."""
    for child in multiprocessing.active_children():
        child.terminate()


def _alone(work: Callable[[Job], Found], job: Job) -> Found | Died:
    try:
        with _processes(1) as pool:
            with _interrupts_held():
                submitted = pool.submit(work, job)
            return submitted.result()
    except BrokenProcessPool:
        return Died()


@contextlib.contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes leave Ctrl-C to this one."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # read when a process of the pool first loads numpy
    try:
        with ProcessPoolExecutor(
            count, mp_context=multiprocessing.get_context("spawn"), initializer=_live_with_parent
        ) as pool:
            yield pool
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """A process started within never hears Ctrl-C, not even during its imports; this one hears it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _live_with_parent() -> None:
    """For a process of the pool: were its parent killed, it would wait for work for ever."""
    threading.Thread(target=_end_after_parent, daemon=True).start()


def _end_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

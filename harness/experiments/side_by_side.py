"""Simulations side by side, one process each; a process that dies costs the point it was at, no other."""

import contextlib
import multiprocessing
import os
import signal
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
                        under_way[pool.submit(work, left[0])] = left[0]
                        left.popleft()
                    ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
                    for future in ended:
                        found = future.result()
                        yield under_way.pop(future), found
        except BrokenProcessPool:
            if stopped():
                return
            # Which of them killed its process is not known: each gets one of its own.
            for job in under_way.values():
                yield job, _alone(work, job)


def stop_at_once() -> None:
    """End the processes under way; their jobs are lost."""
    for child in multiprocessing.active_children():
        child.terminate()


def _alone(work: Callable[[Job], Found], job: Job) -> Found | Died:
    try:
        with _processes(1) as pool:
            return pool.submit(work, job).result()
    except BrokenProcessPool:
        return Died()


@contextlib.contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes leave Ctrl-C to this one."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # read when a process of the pool first loads numpy
    try:
        with ProcessPoolExecutor(
            count, mp_context=multiprocessing.get_context("spawn"), initializer=_ignore_interrupts
        ) as pool:
            yield pool
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

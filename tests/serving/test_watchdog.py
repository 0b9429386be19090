"""When the watchdog speaks, by hand: looks and beats without threads."""

from engine.serving.beat_monitor import BeatMonitor
from engine.serving.watchdog import Watchdog
from engine.torch_backend.executor import Progress


def at(cursor: int, executed_ns: int = 0) -> Progress:
    return Progress(3, ("a", "b"), executed_ns, cursor, f"L{cursor}.attention")


def told(*looks: Progress | None) -> list[bool]:
    left = list(looks)
    watchdog = Watchdog(lambda: left.pop(0), limit_s=8)
    return [bool(watchdog.look()) for _ in looks]


def test_four_looks_at_the_same_boundary_are_a_stall() -> None:
    # The first look starts the count; 8 s in four periods.
    assert told(*[at(1)] * 6) == [False, False, False, False, True, True]


def test_progress_idleness_and_another_stretch_are_none() -> None:
    assert not any(told(*(at(n // 3) for n in range(12))))
    assert not any(told(*[None] * 9))
    assert not any(told(*(at(1, executed_ns=n // 3) for n in range(12))))


def test_the_sentence_names_operator_task_and_requests_and_each_stall_counts_once() -> None:
    looks = [at(1)] * 7 + [at(2)] * 5
    watchdog = Watchdog(lambda: looks.pop(0), limit_s=8)
    sentences = [watchdog.look() for _ in range(12)]
    assert sentences[4] == "operator L1.attention of task 3 has not ended for 8 s (requests: a, b)"
    assert "for 12 s" in sentences[6]
    assert sentences[7] == ""
    assert sentences[11].startswith("operator L2.attention")
    assert watchdog.stalls == 2


def test_beats_that_stop_are_silence() -> None:
    now_s = [0.0]
    monitor = BeatMonitor(8, lambda: now_s[0])
    now_s[0] = 100.0
    assert (monitor.silent, monitor.stall) == (False, ""), "before the first beat nothing is expected"
    monitor.beat("", 0)
    now_s[0] = 110.0
    assert not monitor.silent
    now_s[0] = 110.5
    assert monitor.stall == "the engine process has given no sign of life for 10.5 s"
    monitor.beat("operator x hangs", 1)
    assert (monitor.silent, monitor.stall, monitor.stalls) == (False, "operator x hangs", 1)

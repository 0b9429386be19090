from engine.core.batch import Sequence, Task, TaskKind
from engine.model.segments import Segment, segments_of


def test_sequences_lie_one_after_the_other() -> None:
    task = Task(4, TaskKind.PREFILL, (Sequence("a", 0, 5), Sequence("b", 30, 2, last=False), Sequence("c", 9, 1)))
    assert segments_of(task) == (
        Segment("a", 0, 5, 0, True),
        Segment("b", 5, 2, 30, False),
        Segment("c", 7, 1, 9, True),
    )

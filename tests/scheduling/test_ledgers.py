import pytest

from engine.core.batch import Sequence, Task, TaskKind
from engine.core.request import Request
from engine.scheduling.kv_ledger import ActivationLedger, KVLedger, LedgerError

TASK = Task(7, TaskKind.PREFILL, (Sequence("a", 0, 4),))


@pytest.mark.parametrize(("prompt", "generated", "blocks"), [(15, 1, 1), (16, 1, 2), (30, 2, 2), (160, 33, 13)])
def test_blocks_cover_prompt_and_all_tokens_to_generate(prompt: int, generated: int, blocks: int) -> None:
    assert KVLedger(100, 16).blocks_for(Request("a", 0, 0, prompt, generated)) == blocks


def test_kv_blocks_are_taken_and_given_back() -> None:
    ledger = KVLedger(10, 16)
    ledger.reserve("a", 4)
    ledger.reserve("b", 6)
    assert (ledger.free_blocks, ledger.holders) == (0, {"a", "b"})
    ledger.check()
    ledger.release("a")
    assert (ledger.free_blocks, ledger.holders) == (4, {"b"})
    ledger.release("b")
    ledger.check()
    assert ledger.free_blocks == ledger.capacity_blocks == 10


def test_kv_is_never_over_capacity_and_never_taken_or_given_twice() -> None:
    ledger = KVLedger(10, 16)
    ledger.reserve("a", 6)
    with pytest.raises(LedgerError, match="b needs 5 KV blocks, 4 are free"):
        ledger.reserve("b", 5)
    with pytest.raises(LedgerError, match="a holds KV blocks already"):
        ledger.reserve("a", 1)
    ledger.release("a")
    with pytest.raises(LedgerError, match="does not hold"):
        ledger.release("a")
    assert ledger.free_blocks == 10


def test_activation_bytes_are_taken_and_given_back() -> None:
    ledger = ActivationLedger(100)
    ledger.reserve(TASK, 60)
    assert (ledger.free_bytes, ledger.holders, ledger.held_by(7)) == (40, {7}, 60)
    with pytest.raises(LedgerError):
        ledger.reserve(Task(8, TaskKind.PREFILL, ()), 41)
    with pytest.raises(LedgerError):
        ledger.reserve(TASK, 1)
    ledger.release(7)
    with pytest.raises(LedgerError):
        ledger.release(7)
    ledger.check()
    assert ledger.free_bytes == 100


def test_check_sees_a_leak() -> None:
    ledger = KVLedger(10, 16)
    ledger.reserve("a", 4)
    ledger._free = 7
    with pytest.raises(LedgerError, match="7 free \\+ 4 held != 10"):
        ledger.check()

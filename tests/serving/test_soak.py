"""The soak of bench/soak.py in its short form: the same code and the same conditions as `make soak`."""

import asyncio
import copy

import pytest

from bench.soak import Soak, soak

SECONDS = 60


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_twice_the_load_and_clients_that_leave_leak_nothing() -> None:
    seen = asyncio.run(soak("cpu_tiny", SECONDS, 2.0, seed=1))
    assert seen.faults() == []
    assert seen.sent > 100
    assert seen.report["cancelled_requests"] > 0
    for name, sentence in {
        "kv_blocks_free": "kv_blocks_free: 300 before, 299 after",
        "activation_bytes": "activation_bytes: 0 before, -1 after",
    }.items():
        assert sentence in leaked(seen, name).faults(), "a leak of one would be seen"


def leaked(seen: Soak, name: str) -> Soak:
    other = copy.deepcopy(seen)
    other.after[name] -= 1
    return other


def test_memory_that_grows_is_a_fault_and_memory_that_shrinks_is_none() -> None:
    def grown(per_second: float) -> Soak:
        memory = [(float(s), {"HTTP": 1000, "engine": round(1000 * (1 + s * per_second))}) for s in range(101)]
        return Soak(memory=memory)

    # Medians at 37 s and 87.5 s: the rise between them counts.
    assert grown(0.002).growth("engine") == pytest.approx(1.175 / 1.074 - 1, abs=2e-3)
    assert grown(0.002).grew("engine")
    assert not grown(0.0005).grew("engine")
    assert not grown(-0.002).grew("engine")
    assert not grown(0.002).grew("HTTP")

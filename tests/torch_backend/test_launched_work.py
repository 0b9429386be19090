"""An executor on a device that works behind the host: nothing is freed or told before what was launched is over."""

import pytest

from engine.core.batch import Sequence
from engine.core.commands import Discard, Pause, ReleaseKV, Resume
from engine.core.events import Completion, KVReleased, Preempted
from engine.torch_backend.models.llama import Llama
from engine.torch_backend.operator_times import OperatorTimes
from engine.torch_backend.program import Operator
from tests.torch_backend.engine_run import prompt
from tests.torch_backend.executor_rig import HeldOperator, Rig, prefill
from tests.torch_backend.fake_device import Device

OPERATOR_NS = 1_000_000
BOUND_NS = 3_000_000


@pytest.fixture(name="device")
def _device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """What every executor made in the test launches to."""
    device = Device()

    def predicted_ns(times: OperatorTimes, operator: Operator) -> int:
        device.launch(OPERATOR_NS)
        return OPERATOR_NS

    monkeypatch.setattr(OperatorTimes, "predicted_ns", predicted_ns)
    monkeypatch.setattr("engine.torch_backend.executor.new_window", lambda *_: device.window(BOUND_NS))
    return device


def test_kv_is_freed_behind_the_last_write(monkeypatch: pytest.MonkeyPatch, tiny: Llama, device: Device) -> None:
    held = HeldOperator(monkeypatch, tiny, "o_proj")
    rig = Rig(tiny)
    left_ns = []
    free = rig.executor.cache.free
    monkeypatch.setattr(
        rig.executor.cache, "free", lambda name: (left_ns.append(device.ends_ns[-1] - device.now_ns), free(name))
    )
    rig.register("a", prompt(20))
    rig.executor.submit([prefill(1, Sequence("a", 0, 20))])
    assert held.reached.wait(120)
    assert device.ends_ns[-1] > device.now_ns  # launched, and not over
    rig.executor.submit([Discard(1), ReleaseKV("a")])
    assert left_ns == []
    held.go.set()
    assert isinstance(rig.event(), Preempted)
    assert isinstance(rig.event(), KVReleased)
    assert left_ns == [0]
    rig.executor.check()
    rig.executor.close()


def test_a_pause_and_an_end_are_told_when_the_device_is_done(
    monkeypatch: pytest.MonkeyPatch, tiny: Llama, device: Device
) -> None:
    held = HeldOperator(monkeypatch, tiny, "o_proj")
    rig = Rig(tiny)
    rig.register("a", prompt(20))
    rig.executor.submit([prefill(1, Sequence("a", 0, 20))])
    assert held.reached.wait(120)
    rig.executor.submit([Pause(1)])
    held.go.set()
    assert isinstance(rig.event(), Preempted)
    assert device.now_ns == device.ends_ns[-1] == 4 * OPERATOR_NS  # embedding to o_proj; nothing more is launched
    rig.executor.submit([Resume(1)])
    assert isinstance(rig.event(), Completion)
    assert device.now_ns == device.ends_ns[-1] == 12 * OPERATOR_NS
    assert device.waits == 2  # one wait for the device in each stretch: at its end
    rig.executor.close()

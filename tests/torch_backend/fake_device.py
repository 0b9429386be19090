"""A device that works behind the host, on a clock of its own."""

from collections.abc import Callable

from engine.torch_backend.gate import LaunchWindow


class Device:
    """Runs what is launched in order, on a clock that moves only while somebody waits."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.ends_ns = [0]
        self.launched_at_ns: list[int] = []
        self.waits = 0

    def launch(self, took_ns: int) -> None:
        self.launched_at_ns.append(self.now_ns)
        self.ends_ns.append(max(self.now_ns, self.ends_ns[-1]) + took_ns)

    def sleep_s(self, seconds: float) -> None:
        assert seconds > 0
        self.now_ns += max(1, round(seconds * 1e9))

    def window(self, bound_ns: int, learn: Callable[[int, int], None] | None = None) -> LaunchWindow:
        return LaunchWindow(bound_ns, lambda: Mark(self), learn, lambda: self.now_ns, self.sleep_s)


class Mark:
    """An event of that device."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def record(self) -> None:
        self.end_ns = self.device.ends_ns[-1]

    def synchronize(self) -> None:
        self.device.waits += 1
        self.device.now_ns = max(self.device.now_ns, self.end_ns)

    def query(self) -> bool:
        return self.device.now_ns >= self.end_ns

    def elapsed_time(self, end_event: "Mark") -> float:
        return (end_event.end_ns - self.end_ns) / 1e6


def launch_all(device: Device, ahead: LaunchWindow, took_ns: list[int], predicted_ns: list[int] | None = None) -> None:
    for took, predicted in zip(took_ns, predicted_ns or took_ns, strict=True):
        ahead.before_launch()
        device.launch(took)
        ahead.launched(predicted, took)

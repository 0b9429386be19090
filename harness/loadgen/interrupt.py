"""How a user stops a run: once to stop sending, twice to stop hard."""

import asyncio


class Interrupt:
    """Pressed by the edge, e.g. `loop.add_signal_handler(signal.SIGINT, interrupt.press)`.

    stop_sending: set by the first press; open requests are drained, the rest stay unsent.
    stop_hard: set by the second; open requests are aborted at once.
    """

    def __init__(self) -> None:
        self.stop_sending = asyncio.Event()
        self.stop_hard = asyncio.Event()

    def press(self) -> None:
        """The user asked to stop, once more. Call it on the event loop's thread."""
        if self.stop_sending.is_set():
            self.stop_hard.set()
        self.stop_sending.set()

"""One prefill or decode instance under a proxy: an engine process that is started again when it dies."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from engine.serving.cpu_affinity import available_cpus
from engine.serving.engine_process import EngineError, EngineProcess, Phase
from engine.serving.engine_state import EngineDescription
from engine.serving.settings import EngineSettings, SettingsError

LOG = logging.getLogger(__name__)
RESTART_PAUSE_S = 0.5
MOST_FAILED_STARTS = 3


class KeptInstance:
    """name: "prefill-0", "decode-1". on_change: told when it has become ready, when it goes on after it hung, and when
    it has ended.

    on_unclaimed: told the ticket of KV that left after its request was closed.
    given_up: why it is not started again; "" while it is.
    """

    def __init__(
        self,
        name: str,
        settings: EngineSettings,
        command: Sequence[str],
        on_change: Callable[[], None],
        on_unclaimed: Callable[[str], None],
    ) -> None:
        self.name = name
        self.engine: EngineProcess | None = None
        self.given_up = ""
        self._settings = settings
        self._command = (*command, "--name", name)
        # This process may be moved to a CPU of its own later; an instance begun then needs one of these.
        self._cpus = available_cpus()
        self._on_change = on_change
        self._on_unclaimed = on_unclaimed
        self._first: asyncio.Future[EngineDescription] = asyncio.get_running_loop().create_future()
        self._keeping = asyncio.create_task(self._keep())

    @property
    def usable(self) -> bool:
        """Whether it can take requests: ready, and nothing in it hangs."""
        return self.engine is not None and self.engine.phase is Phase.READY and not self.engine.stall

    async def first_ready(self) -> EngineDescription:
        """Wait for its first start. Raises SettingsError or EngineError when that fails."""
        return await asyncio.shield(self._first)

    async def stop(self) -> None:
        """End it for good."""
        self._keeping.cancel()
        await asyncio.wait([self._keeping])
        if self.engine is not None:
            await self.engine.stop()

    async def _keep(self) -> None:
        failed_starts, reason = 0, ""
        while failed_starts < MOST_FAILED_STARTS:
            try:
                self.engine = await EngineProcess.launch(
                    self._settings, self._command, self._on_unclaimed, self._on_change, self._cpus
                )
                description = await self.engine.ready()
            except (SettingsError, EngineError, OSError) as error:
                reason = str(error)
                failed_starts += 1
                LOG.error("%s did not start: %s", self.name, reason)
                if not self._first.done():
                    self._fail_first(error if isinstance(error, SettingsError) else EngineError(reason))
                    return
            else:
                failed_starts = 0
                if not self._first.done():
                    self._first.set_result(description)
                self._on_change()
                await self.engine.ended.wait()
                LOG.error("%s ended: %s; it is started again", self.name, self.engine.failure)
            if self.engine is not None:
                await self.engine.stop()
            self._on_change()
            await asyncio.sleep(RESTART_PAUSE_S)
        self.given_up = f"{self.name} failed to start {failed_starts} times: {reason}"
        self._on_change()

    def _fail_first(self, error: SettingsError | EngineError) -> None:
        self._first.set_exception(error)
        self._first.exception()  # marks it as seen: nobody may be waiting
        self.given_up = f"{self.name}: {error}"
        self._on_change()

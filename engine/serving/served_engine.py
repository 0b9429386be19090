"""What the HTTP application needs of what it serves: one engine process, or a proxy over several."""

import asyncio
from typing import Protocol

from engine.serving.engine_process import Phase
from engine.serving.engine_state import EngineDescription, FrontState, Snapshot
from engine.serving.generation import Generation
from engine.serving.open_request import Token


class OpenGeneration(Protocol):
    """A generation under way."""

    async def next(self) -> Token:
        """The next token. Raises ApiError when the request was refused or failed."""
        ...


class ServedEngine(Protocol):
    """`engine.serving.engine_process.EngineProcess` says what each is."""

    ended: asyncio.Event
    failure: str

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        ...

    @property
    def open_requests(self) -> int:
        """Requests that are not finished."""
        ...

    @property
    def silent(self) -> bool:
        """Whether it answers nothing."""
        ...

    @property
    def stall(self) -> str:
        """Why it cannot serve at this moment: a sentence, or nothing."""
        ...

    def front_state(self) -> FrontState:
        """What is known without asking."""
        ...

    async def ready(self) -> EngineDescription:
        """Wait until it can serve."""
        ...

    def open(self, generation: Generation) -> OpenGeneration:
        """Begin a generation. Raises ApiError while none can be taken."""
        ...

    def close(self, request_id: str) -> None:
        """The client has its answer, or left."""
        ...

    async def snapshot(self, reset: bool = False) -> Snapshot:
        """Counters and state."""
        ...

    async def stop(self) -> int:
        """End it."""
        ...

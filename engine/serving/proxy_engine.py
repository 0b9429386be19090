"""What a proxy serves: prefill instances and decode instances as one engine (`engine.serving.served_engine`)."""

import asyncio
import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence

from engine.core.batch import Work
from engine.core.clock import NS_PER_S
from engine.core.slo import NO_SLO_DUE_NS
from engine.scheduling.predictors.guarded import GuardedPredictor
from engine.scheduling.predictors.polynomial import PrefillSample, fit
from engine.scheduling.report_sum import sum_of_reports
from engine.scheduling.routing.catalogue import ROUTERS
from engine.scheduling.routing.decode_room import DecodeRoom
from engine.scheduling.routing.prefill_queues import PrefillQueues
from engine.scheduling.routing.router import Prompt
from engine.serving.api_error import ApiError
from engine.serving.engine_process import EngineError, EngineProcess, Phase
from engine.serving.engine_state import EngineDescription, FrontState, LiveState, Snapshot
from engine.serving.generation import Generation
from engine.serving.handed_over import HandedOver
from engine.serving.kept_instance import KeptInstance
from engine.serving.proxied_request import ProxiedRequest
from engine.serving.proxy_settings import ProxySettings
from engine.serving.settings import EngineSettings

RETRY_WAIT_S = 60.0
"""How long a request whose prefill instance died waits for another one, where none is left."""


class ProxyEngine:
    """Routes requests, gives room on decode instances, frees what was handed over. Made by `launch`."""

    def __init__(self, proxy: ProxySettings, settings: EngineSettings, command: Sequence[str]) -> None:
        self._settings = proxy
        self._handed_over = HandedOver(settings.hand_over_folder)
        self._queues = PrefillQueues(ROUTERS[proxy.routing]())
        self._open: dict[str, ProxiedRequest] = {}
        self._placed: dict[str, asyncio.Future[int]] = {}
        self._changed = asyncio.Event()
        self._room = DecodeRoom(())
        self._block_tokens = settings.block_tokens
        self._predictor: GuardedPredictor | None = None
        self.phase = Phase.STARTING
        self.failure = ""
        self.ended = asyncio.Event()
        places = itertools.count()
        self._prefill = self._start("prefill", proxy.prefill_instances, settings, command, places)
        self._decode = self._start("decode", proxy.decode_instances, settings, command, places)

    @classmethod
    async def launch(cls, proxy: ProxySettings, settings: EngineSettings, command: Sequence[str]) -> "ProxyEngine":
        """Start all instances. Raises SettingsError for a folder that cannot be used."""
        HandedOver(settings.hand_over_folder).remove_old()
        return cls(proxy, settings, command)

    def _start(
        self, role: str, count: int, settings: EngineSettings, command: Sequence[str], places: Iterator[int]
    ) -> tuple[KeptInstance, ...]:
        """places: number of each instance among all, by which it has a CUDA device, and a CPU where they are pinned."""
        instances = []
        for index, place in zip(range(count), places, strict=False):
            name = f"{role}-{index}"
            own = dataclasses.replace(
                settings,
                cuda_device=settings.cuda_device + place,
                engine_cpu=None if settings.engine_cpu is None else settings.engine_cpu + place,
                hand_over_folder=self._handed_over.folder,
                decision_log=f"{settings.decision_log}.{name}" if settings.decision_log else "",
            )
            instances.append(KeptInstance(name, own, command, self._on_change, self._handed_over.free))
        return tuple(instances)

    # What the HTTP application asks (`engine.serving.served_engine.ServedEngine`).

    @property
    def open_requests(self) -> int:
        """Requests that are not finished."""
        return len(self._open)

    @property
    def silent(self) -> bool:
        """An instance that hangs is not asked."""
        return False

    @property
    def stall(self) -> str:
        """That no instance of a role can serve; "" while one of each can."""
        if self.phase is not Phase.READY:
            return ""
        return _missing("prefill", self._prefill) or _missing("decode", self._decode)

    def front_state(self) -> FrontState:
        """Of all instances."""
        running = _running((*self._prefill, *self._decode))
        return FrontState(len(self._open), bool(self.stall), sum(engine.front_state().stalls for engine in running))

    async def ready(self) -> EngineDescription:
        """Wait until every instance can serve. Raises SettingsError or EngineError for the first that cannot."""
        found = await asyncio.gather(*(instance.first_ready() for instance in (*self._prefill, *self._decode)))
        decoding = found[len(self._prefill) :]
        self._room = DecodeRoom([description.kv_blocks for description in decoding])
        samples = [PrefillSample(tokens, 0, seconds) for tokens, seconds in found[0].prefills]
        self._predictor = GuardedPredictor(fit(samples)) if len(samples) >= 4 else None
        self.phase = Phase.READY
        return dataclasses.replace(found[0], max_context_tokens=min(each.max_context_tokens for each in found))

    def open(self, generation: Generation) -> ProxiedRequest:
        """Begin a generation. Raises ApiError while none can be taken: the client may come again."""
        if self.phase is not Phase.READY:
            raise ApiError(503, f"the proxy is {self.phase}")
        if self.stall:
            raise ApiError(503, self.stall)
        if self._room.waiting >= self._settings.max_waiting_for_decode:
            raise ApiError(503, f"the decode instances are full: {self._room.waiting} requests wait for room on them")
        request = self._open[generation.request_id] = ProxiedRequest(generation, self)
        return request

    def close(self, request_id: str) -> None:
        """The client has its answer, or left. Unknown ids are ignored."""
        request = self._open.pop(request_id, None)
        if request is not None:
            request.close()

    async def snapshot(self, reset: bool = False) -> Snapshot:
        """The sums of all instances that answer. Raises EngineError when none does."""
        running = [engine for engine in _running((*self._prefill, *self._decode)) if not engine.silent]
        if not running:
            raise EngineError("no instance is running")
        return _sum(await asyncio.gather(*(engine.snapshot(reset) for engine in running)))

    async def stop(self) -> int:
        """End all instances, and free what they left."""
        if self.phase is not Phase.FAILED:
            self.phase = Phase.STOPPED
        for request_id in list(self._open):
            self.close(request_id)
        await asyncio.gather(*(instance.stop() for instance in (*self._prefill, *self._decode)))
        await self._handed_over.close()
        return 0

    # What requests ask (`engine.serving.proxied_request.Dispatcher`).

    async def prefill_instance(self, generation: Generation, may_wait: bool) -> KeptInstance:
        """By the routing policy, among the instances that can serve."""
        if may_wait and not _usable(self._prefill):
            await self._until_prefill_instance()
        available = _usable(self._prefill)
        if not available:
            raise ApiError(503, _missing("prefill", self._prefill))
        ttft_ns = NO_SLO_DUE_NS if generation.slo.ttft_ns is None else generation.slo.ttft_ns
        prompt = Prompt(generation.arrived_at_ns + ttft_ns, self._prefill_ns(len(generation.token_ids)))
        index = self._queues.route(generation.request_id, prompt, available, time.monotonic_ns())
        return self._prefill[index]

    def prefilled(self, request_id: str) -> None:
        """It counts no longer where it was."""
        self._queues.leave(request_id)

    async def decode_instance(self, generation: Generation) -> KeptInstance:
        """In the order of asking, among the instances that can serve and have room."""
        request_id = generation.request_id
        self._room.leave(request_id)
        blocks = -(-(len(generation.token_ids) + generation.max_tokens) // self._block_tokens)
        self._placed[request_id] = asyncio.get_running_loop().create_future()
        self._room.ask(request_id, blocks)
        self._place()
        return self._decode[await self._placed[request_id]]

    def sent(self, ticket: str) -> None:
        """It outlives the instance that sent it."""
        self._handed_over.sent(ticket)

    def received(self, ticket: str) -> None:
        """Freed once, however often it is told."""
        self._handed_over.received(ticket)

    def over(self, request_id: str) -> None:
        """Its room is free, and others may have it."""
        self._placed.pop(request_id, None)
        self._room.leave(request_id)
        self._place()

    # Inside.

    def _prefill_ns(self, tokens: int) -> int:
        if self._predictor is None:
            return tokens * NS_PER_S // 1000  # too few samples for a fit; in proportion, which is what routers compare
        return self._predictor.estimate_ns(Work(((tokens, 0),)))

    def _place(self) -> None:
        for place in self._room.place(_usable(self._decode)):
            waiting = self._placed[place.request_id]
            if not waiting.done():
                waiting.set_result(place.index)

    async def _until_prefill_instance(self) -> None:
        try:
            async with asyncio.timeout(RETRY_WAIT_S):
                while not _usable(self._prefill) and self.phase is Phase.READY:
                    await self._changed.wait()
        except TimeoutError:
            return  # the caller says that there is none

    def _on_change(self) -> None:
        """An instance has become ready, goes on after it hung, or has ended."""
        self._changed.set()
        self._changed = asyncio.Event()
        self._handed_over.sweep()
        for instances in (self._prefill, self._decode) if self.phase is Phase.READY else ():
            if all(instance.given_up for instance in instances):
                self._fail("; ".join(instance.given_up for instance in instances))
                return
        if self.phase is Phase.READY:
            self._place()

    def _fail(self, reason: str) -> None:
        self.phase, self.failure = Phase.FAILED, reason
        for request in self._open.values():
            request.fail(ApiError(500, f"the engine failed: {reason}"))
        self.ended.set()


def _usable(instances: Iterable[KeptInstance]) -> list[int]:
    return [index for index, instance in enumerate(instances) if instance.usable]


def _running(instances: Iterable[KeptInstance]) -> list[EngineProcess]:
    engines = [instance.engine for instance in instances]
    return [engine for engine in engines if engine is not None and engine.phase is Phase.READY]


def _missing(role: str, instances: Sequence[KeptInstance]) -> str:
    if any(instance.usable for instance in instances):
        return ""
    stalls = [each.engine.stall for each in instances if each.engine is not None and each.engine.stall]
    return f"no {role} instance can serve at the moment: " + (stalls[0] if stalls else "it is being started again")


def _sum(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Counts are added, samples joined."""
    return Snapshot(
        sum_of_reports([snapshot.report for snapshot in snapshots]),
        LiveState(
            **{
                each.name: sum(getattr(snapshot.live, each.name) for snapshot in snapshots)
                for each in dataclasses.fields(LiveState)
            }
        ),
    )

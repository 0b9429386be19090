"""The servers of a run: started when first needed, kept while points ask for the same, stopped at the end."""

import asyncio
import contextlib
import dataclasses
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from baselines.servers.ports import free_port
from baselines.servers.process import ServerProcess, ServerProcessError
from engine.core.record import EngineReport
from engine.serving.settings import flags
from harness.assembly.effective import engine_processes, engine_settings, proxy_settings
from harness.assembly.reading import SettingsError
from harness.assembly.rival import RIVALS
from harness.assembly.settings import PointSettings
from harness.experiments.engine_processes import engine_processes_of
from harness.experiments.external_server import external_target, require_token
from harness.experiments.machine import UNPINNED, Cores, pinned
from harness.experiments.rival_server import NotRunError, Rival, place, rival_of
from harness.loadgen.settings import SLOStyle, Target
from harness.loadgen.warmup import wait_until_ready

START_DEADLINE_S = 300.0
RIVAL_START_DEADLINE_S = 900.0
"""vLLM and SGLang import for a minute on a quiet core, and for many on a busy one."""
IDLE_DEADLINE_S = 30.0
IDLE_KEYS = ("waiting", "executing", "preempted", "decoding", "handing_over", "open_requests")


class ServerFailedError(RuntimeError):
    """A server did not start, died, or did not come to rest."""


@dataclasses.dataclass(frozen=True, slots=True)
class Serving:
    """A ready server.

    command: how it was started; empty for an external one. log: its output so far. rival: version and environment of
    one that is not our engine; empty for our own. cores: of its engine, and of all else while it is measured.
    processes: of an engine of several: what each is, and the CPUs it may run on.
    """

    target: Target
    command: tuple[str, ...]
    log: Path | None
    rival: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cores: Cores = UNPINNED
    processes: tuple[Mapping[str, Any], ...] = ()


class ServerPool:
    """At most one server of ours at a time: measured points have the machine to themselves."""

    def __init__(self, cores: Cores, logs: Path, tell: Callable[[str], None]) -> None:
        self._cores = cores
        self._logs = logs
        self._tell = tell
        self._process: ServerProcess | None = None
        self._key: tuple[str, ...] = ()
        self._serving: Serving | None = None
        self._answered: set[Target] = set()

    async def get(self, point: PointSettings, profile: Path | None) -> Serving:
        """A ready, idle server for this point, its report reset.

        Raises ServerFailedError, ServerNotReadyError, NotRunError where this machine cannot have the server.
        """
        if point.system.backend == "server":
            self.close()
            return await self._external(point)
        if point.system.backend in RIVALS:
            return await self._rival(point)
        cores = self._cores.spread(engine_processes(point))
        engine = tuple(flags(engine_settings(point, str(profile or ""), cores.engine)))
        proxy = proxy_settings(point)
        # Counts at their defaults are no flags: the module says that there is a proxy.
        module = "engine.serving.server" if proxy is None else "engine.serving.proxy"
        key = (module, *(flags(proxy) if proxy is not None else ()), *engine)
        if key != self._key or self._process is None or self._process.exit_code() is not None:
            self.close()
            await self._start(point, key, cores)
        assert self._serving is not None
        await self._settle(self._serving)
        return self._serving

    async def report(self, serving: Serving) -> EngineReport | None:
        """What the engine counted since the point began; None for an external server."""
        if not serving.command:
            return None
        self.require_alive()
        if serving.rival:
            return None
        given = await _json(serving.target, "GET", "report")
        counts: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
        return EngineReport(**counts)

    async def at_rest(self, serving: Serving) -> bool | None:
        """Whether nothing of a run is left in our server, waited for; None for one that is not our engine.

        Raises ServerFailedError when it no longer answers.
        """
        if not serving.command or serving.rival:
            return None
        return await self._left_behind(serving) is None

    def require_alive(self) -> None:
        """Raise ServerFailedError when our server has ended."""
        if self._process is not None:
            try:
                self._process.require_alive()
            except ServerProcessError as error:
                raise ServerFailedError(f"{error} (log: {self._process.log_path})") from error

    def keep_log(self, serving: Serving, to: Path) -> None:
        """Copy what the server has said so far beside a point."""
        if serving.log is not None and serving.log.is_file():
            shutil.copyfile(serving.log, to)

    def close(self) -> None:
        """Stop our server and all its children. Its log goes, unless it ended before it was told to."""
        if self._process is not None:
            ended_well = self._process.exit_code() is None
            self._process.stop()
            for sentence in self._process.left_behind():
                self._tell(f"after the server was stopped, {sentence}")
            if ended_well and self._serving is not None and self._serving.log is not None:
                self._serving.log.unlink(missing_ok=True)
        self._process, self._serving, self._key = None, None, ()

    async def _external(self, point: PointSettings) -> Serving:
        if point.system.base_url is None:
            raise NotRunError(str(point.system.without_url))
        target = external_target(point.system, point.model.checkpoint)
        try:
            await require_token(target)
        except SettingsError as error:
            if target in self._answered:
                raise ServerFailedError(f"it answered before: {error}") from error
            raise
        self._answered.add(target)
        return Serving(target, (), None, cores=self._cores)

    async def _rival(self, point: PointSettings) -> Serving:
        """A kept rival is at rest once it gives a token to one more request, which comes last in its queue."""
        rival = rival_of(point)
        key = (*rival.shown_command, *(f"{name}={value}" for name, value in sorted(rival.launch.env.items())))
        target = None if self._serving is None else self._serving.target
        if key != self._key or self._process is None or self._process.exit_code() is not None or target is None:
            self.close()
            await self._start_rival(point, rival, key)
        else:
            await self._first_token(target, RIVAL_START_DEADLINE_S)
        assert self._serving is not None
        return self._serving

    async def _start_rival(self, point: PointSettings, rival: Rival, key: tuple[str, ...]) -> None:
        port = free_port()
        log = self._logs / f"{point.system.backend}-{os.getpid()}-{port}.log"
        argv = rival.launch.argv(rival.environment.python, port)
        try:
            with pinned(self._every_core() if self._cores.others is not None else None):
                self._process = ServerProcess(argv, log, rival.launch.env, port=port, scratch=True)
        except ServerProcessError as error:
            raise ServerFailedError(str(error)) from error
        target = Target(f"http://127.0.0.1:{port}", point.model.checkpoint, slo_style=SLOStyle(point.system.slo_fields))
        self._serving, self._key = Serving(target, rival.shown_command, log, rival.facts, self._cores), key
        self._tell(f"starting {point.system.backend} {rival.environment.version}, which takes a minute or more")
        try:
            await self._first_token(target, RIVAL_START_DEADLINE_S)
            place(self._process, rival.launch, self._cores)
        except BaseException:
            self.close()
            raise

    async def _start(self, point: PointSettings, key: tuple[str, ...], cores: Cores) -> None:
        port = free_port()
        command = [sys.executable, "-m", *key, "--port", str(port)]
        log = self._logs / f"server-{os.getpid()}-{port}.log"
        before = frozenset(os.sched_getaffinity(0)) | self._every_core() if self._cores.others is not None else None
        try:
            with pinned(before):
                self._process = ServerProcess(command, log)
        except ServerProcessError as error:
            raise ServerFailedError(str(error)) from error
        target = Target(f"http://127.0.0.1:{port}", point.model.checkpoint)
        self._serving, self._key = Serving(target, tuple(command[1:]), log, cores=cores), key
        try:
            await self._first_token(target)
            if cores.others is not None:
                # The HTTP process joins the client once the engine, which inherited its cores, has its own.
                os.sched_setaffinity(self._process.pid, cores.others)
            if engine_processes(point) > 1:
                found = engine_processes_of(self._process)
                self._serving = dataclasses.replace(self._serving, processes=found)
        except BaseException:
            self.close()
            raise

    def _every_core(self) -> frozenset[int]:
        engine = frozenset() if self._cores.engine is None else frozenset({self._cores.engine})
        return engine | (self._cores.others or frozenset())

    async def _first_token(self, target: Target, deadline_s: float = START_DEADLINE_S) -> None:
        """Ready = one real token; a server that dies meanwhile is told at once, with its last words."""
        ready = asyncio.ensure_future(wait_until_ready(target, deadline_s, prompt=range(16, 32), poll_s=0.1))
        try:
            while not ready.done():
                await asyncio.wait([ready], timeout=0.2)
                self.require_alive()
            ready.result()
        finally:
            ready.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await ready

    async def _settle(self, serving: Serving) -> None:
        """Wait until nothing of an earlier point is left, then reset the report. What stays is a leak, and an error."""
        left = await self._left_behind(serving)
        if left is not None:
            raise ServerFailedError(f"the server did not come to rest within {IDLE_DEADLINE_S:g} s: {left}")
        await _json(serving.target, "POST", "report/reset")

    @staticmethod
    async def _left_behind(serving: Serving) -> dict[str, Any] | None:
        """None once no request is live, every KV block free and no activation held; else the state at the deadline."""
        deadline = asyncio.get_running_loop().time() + IDLE_DEADLINE_S
        while True:
            state = await _json(serving.target, "GET", "state")
            idle = all(state[key] == 0 for key in IDLE_KEYS)
            if idle and state["kv_blocks_free"] == state["kv_blocks_total"] and state["activation_bytes"] == 0:
                return None
            if asyncio.get_running_loop().time() > deadline:
                return state
            await asyncio.sleep(0.05)


async def _json(target: Target, method: str, path: str) -> dict[str, Any]:
    url = f"{target.base_url.rstrip('/')}/{path}"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
            session.request(method, url) as response,
        ):
            if response.status != 200:
                raise ServerFailedError(f"{method} /{path} answered {response.status}")
            answer: dict[str, Any] = await response.json()
            return answer
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ServerFailedError(f"{method} /{path} failed: {type(error).__name__}: {error}") from error

"""What the engine process does with its channel.

Three threads: the reader turns messages into events, the main thread runs the driver, the
executor's thread runs torch. The process lives as long as its channel: it ends when the other side
closes it or is gone, whatever it is doing.
"""

import contextlib
import dataclasses
import json
import logging
import os
import socket
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from engine.serving import catalogue
from engine.serving.channel import BlockingChannel
from engine.serving.cpu_affinity import pin_engine, run_on
from engine.serving.settings import EngineSettings, SettingsError, from_mapping

if TYPE_CHECKING:
    from engine.serving.running_engine import RunningEngine

LOG = logging.getLogger("engine")
STOP_WAIT_S = 3.0


def serve_channel(descriptor: int) -> int:
    """Serve one channel. Returns the exit status: 0 stopped, 1 broken, 2 settings that cannot be."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    channel = BlockingChannel(socket.socket(fileno=descriptor))
    start = channel.receive()
    if start is None:
        return 0
    building: Future[RunningEngine] = Future()
    threading.Thread(target=_read, args=(channel, building), name="reader", daemon=True).start()
    try:
        settings = from_mapping(EngineSettings, json.loads(start[0]["settings"]))
        catalogue.check(settings)
        run_on(start[0].get("cpus", ()))
        pin_engine(settings.engine_cpu, settings.tensor_parallel)
        _run(settings, channel, building)
    except SettingsError as error:
        _tell(channel, {"kind": "refused", "reason": str(error)})
        return 2
    except Exception as error:
        # Whatever broke: the server and its open requests must hear of it before the process ends.
        LOG.exception("the engine broke")
        _tell(channel, {"kind": "died", "reason": f"{type(error).__name__}: {error}"})
        return 1
    return 0


def _run(settings: EngineSettings, channel: BlockingChannel, building: "Future[RunningEngine]") -> None:
    # Here, not at the top: torch starts threads at import, after this process was pinned.
    from engine.serving.running_engine import build
    from engine.serving.watchdog import Watchdog

    with build(settings, channel) as engine:
        building.set_result(engine)
        channel.send({"kind": "ready", "description": dataclasses.asdict(engine.description)})
        if settings.watchdog_s:
            Watchdog(engine.executor.progress, settings.watchdog_s).start(channel)
        engine.run()


def _read(channel: BlockingChannel, building: "Future[RunningEngine]") -> None:
    """The reader thread. Nothing but a stop, or the end, comes before the engine said it is ready."""
    frame = channel.receive()
    if not building.done():
        os._exit(0)
    engine = building.result()
    try:
        engine.intake.serve(frame)
    except Exception as error:
        LOG.exception("the reader broke")
        _tell(channel, {"kind": "died", "reason": f"{type(error).__name__}: {error}"})
        os._exit(1)
    # An operator on its way may be long; nobody waits for it.
    last_resort = threading.Timer(STOP_WAIT_S, os._exit, (0,))
    last_resort.daemon = True
    last_resort.start()
    engine.stop()


def _tell(channel: BlockingChannel, header: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the server is gone: nobody to tell
        channel.send(header)

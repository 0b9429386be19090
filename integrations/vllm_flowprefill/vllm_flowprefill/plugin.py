"""The entry point that vLLM calls in each of its processes (group vllm.general_plugins)."""

import functools
from typing import Any

from vllm_flowprefill.settings import NESTING, read_settings


def register() -> None:
    """Let the engine core attach the hooks before its loop begins. Does nothing unless --additional-config asks."""
    from vllm.v1.engine.core import EngineCoreProc

    stock = EngineCoreProc.run_busy_loop
    if hasattr(stock, "attaches_flowprefill"):
        return

    @functools.wraps(stock)
    def run_busy_loop(core: Any) -> Any:
        settings = read_settings(core.vllm_config.additional_config)
        if settings.granularity in NESTING:
            from vllm_flowprefill.nesting import attach

            attach(core, settings)
        return stock(core)

    run_busy_loop.attaches_flowprefill = True  # type: ignore[attr-defined]
    EngineCoreProc.run_busy_loop = run_busy_loop

"""Every attribute of vLLM that the plugin relies on and that vLLM promises to nobody.

A version that moves one fails at the start, and in the tests, with its name.
"""

from collections.abc import Iterator
from typing import Any

from vllm_flowprefill.settings import SettingError

CORE = (
    "scheduler", "model_executor", "input_queue", "step_fn", "vllm_config", "_process_engine_step",
    "_process_aborts_queue", "_handle_client_request", "_send_error_outputs_to_client",
)  # fmt: skip
"""Of an EngineCoreProc."""
SCHEDULER = (
    "running", "waiting", "requests", "finished_req_ids", "reset_preempted_req_ids", "prev_step_scheduled_req_ids",
    "current_step", "block_size", "max_num_active_reqs", "kv_cache_manager", "vllm_config", "schedule",
    "update_from_output", "finish_requests", "add_request",
)  # fmt: skip
RUNNER = (
    "model", "requests", "input_batch", "kv_caches", "kv_cache_config", "execute_model_state", "num_prompt_logprobs",
    "compilation_config", "vllm_config", "device", "initialize_kv_cache", "initialize_kv_cache_tensors",
)  # fmt: skip
INPUT_BATCH = ("req_id_to_index", "remove_request", "condense", "refresh_metadata")
REQUEST = (
    "request_id", "arrival_time", "sampling_params", "num_prompt_tokens", "num_computed_tokens", "num_tokens",
    "num_output_tokens", "max_tokens", "next_decode_eligible_step", "status", "client_index", "is_finished",
)  # fmt: skip


def missing(core: Any, request: Any | None = None) -> Iterator[str]:
    """Names that a built engine core lacks; of a request too, where one is given."""
    yield from _lacking("EngineCoreProc", core, CORE)
    if hasattr(core, "scheduler"):
        yield from _lacking("Scheduler", core.scheduler, SCHEDULER)
        pool = getattr(getattr(core.scheduler, "kv_cache_manager", None), "block_pool", None)
        yield from _lacking("Scheduler.kv_cache_manager.block_pool", pool, ("get_num_free_blocks",))
    worker = getattr(getattr(getattr(core, "model_executor", None), "driver_worker", None), "worker", None)
    yield from _lacking("UniProcExecutor.driver_worker.worker", worker, ("model_runner",))
    runner = getattr(worker, "model_runner", None)
    if runner is not None:
        yield from _lacking("GPUModelRunner", runner, RUNNER)
        yield from _lacking("GPUModelRunner.input_batch", getattr(runner, "input_batch", None), INPUT_BATCH)
    if request is not None:
        yield from _lacking("Request", request, REQUEST)


def require(core: Any) -> None:
    """Raise SettingError with the first missing name."""
    for name in missing(core):
        raise SettingError(f"vllm_flowprefill: this vLLM has no {name}, which the plugin relies on")


def _lacking(owner: str, thing: Any, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if not hasattr(thing, name):
            yield f"{owner}.{name}"

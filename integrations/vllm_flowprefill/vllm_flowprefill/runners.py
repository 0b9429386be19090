"""Model runners for nested steps: one per depth, each with the first one's weights and KV cache."""

from typing import Any

from vllm.forward_context import override_forward_context


def another_runner(first: Any, kv_cache_config: Any) -> Any:
    """A runner that can execute while `first` is in the middle of a forward pass. Weights and KV cache are shared."""
    stock = type(first)

    class NestedRunner(stock):  # type: ignore[misc, valid-type]
        def initialize_kv_cache_tensors(self, *arguments: Any, **named: Any) -> dict[str, Any]:  # noqa: ARG002
            self.kv_caches = first.kv_caches
            layers = first.compilation_config.static_forward_context
            return {name: layer.kv_cache for name, layer in layers.items() if hasattr(layer, "kv_cache")}

    with override_forward_context(None):
        runner = NestedRunner(first.vllm_config, first.device)
        runner.model = first.model
        runner.initialize_kv_cache(kv_cache_config)
    return runner


def empty(runner: Any) -> dict[str, Any]:
    """Take every request out of a nested runner that is not executing, also after a failed step; the states by id."""
    runner.execute_model_state = None
    states = dict(runner.requests)
    runner.requests.clear()
    runner.num_prompt_logprobs.clear()
    batch = runner.input_batch
    for request_id in list(batch.req_id_to_index):
        batch.remove_request(request_id)
    batch.condense()
    batch.refresh_metadata()
    return states

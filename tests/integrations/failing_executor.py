"""An executor for tests: the forward pass of one request length ends in an error. Runs in vLLM's environment."""

from typing import Any

from vllm_flowprefill.executor import InlineExecutor

FATAL_TOKENS = 77


class FailingExecutor(InlineExecutor):
    """Raises once the model has run on a prompt of FATAL_TOKENS tokens: the runner then waits for a sampling step."""

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        result = super().execute_model(scheduler_output, non_block)
        for new in scheduler_output.scheduled_new_reqs:
            if len(new.prompt_token_ids or ()) == FATAL_TOKENS:
                raise RuntimeError("a test's failing step")
        return result

"""An executor for tests: the nested forward pass of one request length ends in an error. Runs in vLLM's environment."""

from typing import Any

from vllm_flowprefill.executor import InlineExecutor

FATAL_TOKENS = 77


class FailingExecutor(InlineExecutor):
    """Raises once the model has run on a prompt of FATAL_TOKENS tokens: the runner then waits for a sampling step.

    In a nested step only: an error in a plain one ends the engine, in stock vLLM, too.
    """

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """As ever, or RuntimeError."""
        result = super().execute_model(scheduler_output, non_block)
        nested = type(self.driver_worker.worker.model_runner).__name__ == "NestedRunner"
        for new in scheduler_output.scheduled_new_reqs:
            if nested and len(new.prompt_token_ids or ()) == FATAL_TOKENS:
                raise RuntimeError("a test's failing step")
        return result

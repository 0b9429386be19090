"""vLLM's executor in the process of the scheduler, so that a hook in the model can reach it."""

from vllm.v1.executor.uniproc_executor import UniProcExecutor

from vllm_flowprefill.unsupported import settings_or_exit


class InlineExecutor(UniProcExecutor):
    """The stock executor under a name of its own: on a CPU vLLM turns the name `uni` into worker processes."""

    def _init_executor(self) -> None:
        # Before the weights are loaded, so that a mistake is told at once.
        settings_or_exit(self.vllm_config)
        super()._init_executor()

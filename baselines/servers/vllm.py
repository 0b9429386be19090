"""vLLM's server: settings to command line and environment."""

from baselines.servers.launch import OFFLINE, Launch, LaunchSettings, refuse_owned

CPU_BLOCK_TOKENS = 128
"""vLLM's own default on a CPU; on a GPU it is left to vLLM, whose blocks are then GPU_BLOCK_TOKENS."""
GPU_BLOCK_TOKENS = 16
PLUGIN = "flowprefill"
"""The entry point of integrations/vllm_flowprefill; its modules are those of vllm_flowprefill."""

OWNED = {
    "--model": "model.checkpoint",
    "--served-model-name": "model.checkpoint",
    "--load-format": "model.dummy_weights",
    "--dtype": "model.dtype",
    "--max-model-len": "model.max_context_tokens",
    "--num-gpu-blocks-override": "model.kv_tokens",
    "--block-size": "model.kv_tokens",
    "--max-num-batched-tokens": "system.chunk_tokens",
    "--enable-prefix-caching": "system.prefix_cache",
    "--scheduling-policy": "system.policy",
    "--host": "the harness",
    "--port": "the harness",
}


def launch(settings: LaunchSettings) -> Launch:
    """The command for vLLM >= 0.11. Raises LaunchError."""
    refuse_owned(settings.extra_flags, OWNED)
    on_cpu = settings.device == "cpu"
    block_tokens = CPU_BLOCK_TOKENS if on_cpu else GPU_BLOCK_TOKENS
    arguments = [
        # The `vllm` command of a CPU build asks for the metadata of a package it is not; the module is the same server.
        *("-m", "vllm.entrypoints.openai.api_server"),
        *("--model", settings.model),
        *("--served-model-name", settings.served_model),
        *("--dtype", settings.dtype),
        *("--max-model-len", str(settings.max_context_tokens)),
        *("--block-size", str(block_tokens)),
        *("--num-gpu-blocks-override", str(-(-settings.kv_tokens // block_tokens))),
        *("--scheduling-policy", settings.policy),
        "--enable-prefix-caching" if settings.prefix_cache else "--no-enable-prefix-caching",
    ]
    if settings.chunk_tokens is not None:
        arguments += ["--max-num-batched-tokens", str(settings.chunk_tokens)]
    if settings.dummy_weights:
        arguments += ["--load-format", "dummy"]
    if on_cpu:
        arguments += ["--enforce-eager"]
    arguments += [*settings.extra_flags, "--host", "127.0.0.1"]
    env = {**OFFLINE, "OMP_NUM_THREADS": str(settings.threads), "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if on_cpu:
        # The harness places the processes itself, as it places ours.
        env["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        # Only an upper bound: the cache has as many blocks as are asked for above. Without it most of the machine's
        # memory has to be free before vLLM starts.
        env["VLLM_CPU_KVCACHE_SPACE"] = "4"
    # vLLM loads every plugin it finds unless some are named: stock vLLM is started with none, ours with ours alone.
    env["VLLM_PLUGINS"] = PLUGIN if any(f"vllm_{PLUGIN}." in flag for flag in settings.extra_flags) else ""
    # The plugin's executor (integrations/vllm_flowprefill) runs the model in the scheduler's process on a CPU, too.
    worker = on_cpu and not any("InlineExecutor" in flag for flag in settings.extra_flags)
    return Launch("vllm", tuple(arguments), env, "VLLM::Worker" if worker else "VLLM::EngineCore")

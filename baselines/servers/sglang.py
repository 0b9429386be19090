"""SGLang's server: settings to command line and environment."""

from baselines.servers.launch import OFFLINE, Launch, LaunchSettings, refuse_owned

OWNED = {
    "--model-path": "model.checkpoint",
    "--model": "model.checkpoint",
    "--served-model-name": "model.checkpoint",
    "--load-format": "model.dummy_weights",
    "--dtype": "model.dtype",
    "--context-length": "model.max_context_tokens",
    "--max-total-tokens": "model.kv_tokens",
    "--chunked-prefill-size": "system.chunk_tokens",
    "--disable-radix-cache": "system.prefix_cache",
    "--schedule-policy": "system.policy",
    "--enable-priority-scheduling": "system.policy",
    "--device": "device.kind",
    "--host": "the harness",
    "--port": "the harness",
}


def launch(settings: LaunchSettings) -> Launch:
    """The command for SGLang >= 0.5. Raises LaunchError."""
    refuse_owned(settings.extra_flags, OWNED)
    on_cpu = settings.device == "cpu"
    arguments = [
        *("-m", "sglang.launch_server"),
        *("--model-path", settings.model),
        *("--served-model-name", settings.served_model),
        *("--dtype", settings.dtype),
        *("--device", settings.device),
        *("--context-length", str(settings.max_context_tokens)),
        *("--max-total-tokens", str(settings.kv_tokens)),
        *("--schedule-policy", "fcfs"),
    ]
    if settings.policy == "priority":
        arguments += ["--enable-priority-scheduling"]
    if settings.chunk_tokens is not None:
        arguments += ["--chunked-prefill-size", str(settings.chunk_tokens)]
    if not settings.prefix_cache:
        arguments += ["--disable-radix-cache"]
    if settings.dummy_weights:
        arguments += ["--load-format", "dummy"]
    if on_cpu:
        arguments += ["--attention-backend", "torch_native"]
    # Without --sleep-on-idle an idle scheduler polls at most of a core: beside a client on few cores that is load.
    arguments += ["--sleep-on-idle", *settings.extra_flags, "--host", "127.0.0.1"]
    env = {**OFFLINE, "OMP_NUM_THREADS": str(settings.threads)}
    if on_cpu:
        env["SGLANG_USE_CPU_ENGINE"] = "1"
    return Launch("sglang", tuple(arguments), env, "sglang::scheduler")

"""What the plugin does not support is refused at the start, in one sentence that names vLLM's setting."""

from collections.abc import Iterator
from typing import Any

from vllm_flowprefill.settings import NESTING, SettingError, Settings, read_settings

VLLM = "0.32."
"""The versions whose private attributes (private_names.py) are known."""


def refuse_unsupported(config: Any, settings: Settings, vllm_version: str) -> None:
    """Raise SettingError for the first thing that is not supported. config: a VllmConfig."""
    for wrong, sentence in _checks(config, settings, vllm_version):
        if wrong:
            raise SettingError(f"vllm_flowprefill: {sentence}")


def _checks(config: Any, settings: Settings, version: str) -> Iterator[tuple[bool, str]]:
    yield not version.startswith(VLLM), f"vLLM {VLLM}x is needed, this is {version}"
    scheduler, parallel, model = config.scheduler_config, config.parallel_config, config.model_config
    yield bool(scheduler.async_scheduling), "--async-scheduling is not supported, give --no-async-scheduling"
    yield scheduler.policy != "fcfs", f"--scheduling-policy {scheduler.policy} is not supported, order is by deadline"
    yield not scheduler.enable_chunked_prefill, "--no-enable-chunked-prefill is not supported"
    yield config.use_v2_model_runner, "the V2 model runner is not supported, set VLLM_USE_V2_MODEL_RUNNER=0"
    for name in ("tensor", "pipeline", "data", "decode_context", "prefill_context"):
        size = getattr(parallel, f"{name}_parallel_size")
        yield size > 1, f"--{name.replace('_', '-')}-parallel-size {size} is not supported, only 1"
    yield config.speculative_config is not None, "--speculative-config is not supported"
    yield config.kv_transfer_config is not None, "--kv-transfer-config is not supported"
    yield config.ec_transfer_config is not None, "--ec-transfer-config is not supported"
    yield config.lora_config is not None, "--enable-lora is not supported"
    yield model.runner_type != "generate", f"--runner {model.runner_type} is not supported, only generate"
    yield model.is_encoder_decoder, "--model: an encoder-decoder model is not supported"
    yield model.is_multimodal_model, "--model: a multimodal model is not supported"
    yield model.is_moe, "--model: a mixture of experts is not supported"
    if settings.granularity in NESTING:
        eager = model.enforce_eager
        yield not eager, f"granularity {settings.granularity} needs --enforce-eager: compiled code skips the boundaries"


def settings_or_exit(config: Any) -> Settings:
    """The settings of a server that may start; otherwise its engine process ends with one sentence."""
    from vllm import __version__

    try:
        settings = read_settings(config.additional_config)
        refuse_unsupported(config, settings, __version__)
    except SettingError as error:
        raise SystemExit(str(error)) from None
    return settings

"""Trace tokens to the tokens an engine is given, in one place; and the engine's settings made from a point's."""

from dataclasses import dataclass

from engine.serving.proxy_settings import ProxySettings
from engine.serving.settings import EngineSettings
from harness.assembly.settings import PointSettings
from workloads.length_scale import effective_tokens


@dataclass(frozen=True, slots=True)
class EffectiveTokens:
    """What the length scale makes of a point's token counts; None where the point has no such setting."""

    token_bound: int | None
    chunk_tokens: int | None
    tile_tokens: int | None
    kv_tokens: int
    max_context_tokens: int

    @staticmethod
    def of(point: PointSettings) -> "EffectiveTokens":
        """Scaled like the lengths themselves: rounded up, at least 1."""
        scale = point.model.length_scale

        def scaled(tokens: int | None) -> int | None:
            return None if tokens is None else effective_tokens(tokens, scale)

        return EffectiveTokens(
            token_bound=scaled(point.system.token_bound),
            chunk_tokens=scaled(point.system.chunk_tokens),
            tile_tokens=scaled(point.system.tile_tokens),
            kv_tokens=effective_tokens(point.model.kv_tokens, scale),
            max_context_tokens=effective_tokens(point.model.max_context_tokens, scale),
        )

    def columns(self) -> dict[str, int | None]:
        """Named as they are recorded: `<setting>_effective`."""
        return {
            "token_bound_effective": self.token_bound,
            "chunk_tokens_effective": self.chunk_tokens,
            "tile_tokens_effective": self.tile_tokens,
            "kv_tokens_effective": self.kv_tokens,
            "max_context_tokens_effective": self.max_context_tokens,
        }


def proxy_settings(point: PointSettings) -> ProxySettings | None:
    """The proxy a point asks for; None where one engine does both."""
    system = point.system
    if system.prefill_instances is None or system.decode_instances is None:
        return None
    return ProxySettings(system.prefill_instances, system.decode_instances, system.routing or "round_robin")


def engine_processes(point: PointSettings) -> int:
    """How many processes compute a point of our engine: ranks of a split model, or instances behind a proxy."""
    proxy = proxy_settings(point)
    if proxy is not None:
        return proxy.prefill_instances + proxy.decode_instances
    return point.model.tensor_parallel or 1


def engine_settings(point: PointSettings, profile: str, engine_cpu: int | None) -> EngineSettings:
    """The engine a point asks for: everything in tokens as sent.

    profile: file the TTFT predictor is fitted to. What a system does not set keeps the engine's default.
    """
    system, model, device = point.system, point.model, point.device
    effective = EffectiveTokens.of(point)
    chosen = {
        "batching": system.batching,
        "granularity": system.granularity,
        "preempt": system.preempt,
        "batch_deadline": system.batch_deadline,
        "predictor": system.predictor,
        "alpha": system.alpha,
        "token_bound": effective.token_bound,
        "chunk_tokens": effective.chunk_tokens,
        "tile_tokens": effective.tile_tokens,
        "decode_order": system.decode_order,
        "decode_reserve": system.decode_reserve,
        "launch_bound_us": system.launch_bound_us,
    }
    return EngineSettings(
        model=model.checkpoint,
        dummy_weights=model.dummy_weights,
        weights_seed=model.weights_seed,
        device="auto" if device.simulated else device.kind,
        dtype=model.dtype,
        policy=system.policy,
        profile=profile,
        tensor_parallel=model.tensor_parallel or 1,
        threads=device.threads,
        engine_cpu=engine_cpu,
        kv_blocks=-(-effective.kv_tokens // model.block_tokens),
        block_tokens=model.block_tokens,
        max_context_tokens=effective.max_context_tokens,
        activation_bytes=model.activation_bytes,
        **{name: value for name, value in chosen.items() if value is not None},  # type: ignore[arg-type]
    )

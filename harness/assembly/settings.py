"""Every setting of a point, as frozen dataclasses. Token counts are trace tokens (see effective.py)."""

from dataclasses import dataclass
from typing import Literal

from harness.assembly.reading import SettingsError, bounded
from harness.assembly.simulation_settings import SimulatedDeviceSettings
from workloads.settings import WorkloadSettings
from workloads.slo import SLOSettings

Granularity = Literal["none", "layer", "half_layer", "operator", "tile"]

LARGEST_FACTOR = 1e6
"""Of rates, SLOs and give-up multiples: beyond it, either way, there is a slip of the finger and no experiment."""

LONGEST_S = 1e6
"""Of times-out and of arrivals: eleven days."""


SMALLEST_CHUNK_TOKENS = 16
"""One block of KV. A prompt in smaller chunks is thousands of steps: a slip of the finger and no experiment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSettings:
    """What serves the requests: the engine under one policy, or an external OpenAI-compatible server.

    name: option of the `system` group. series: the label a figure draws.
    backend: "engine" = the engine of this project, started here; "vllm", "sglang" = a rival's server, started here;
        "server" = what listens at `base_url`.
    policy, batching, predictor: names of engine.serving.catalogue; with granularity and preempt they make an engine's
        system. An external server's are its own business. A rival's policy is fcfs or priority.
    alpha, token_bound: of `slo_aware` batching (a part of the SLO; trace tokens); token_bound also of `token_limited`.
    chunk_tokens: of `chunked` batching, and a rival's token budget (None = its own default); trace tokens.
    tile_tokens: rows of a tile at granularity `tile`, trace tokens.
    launch_bound_us: how far the host launches ahead of a CUDA device; 0 = it waits for each operator, as the paper's
        release does; None = the engine's default.
    api_key_env: name of the environment variable that holds an external server's key.
    decode_order, decode_reserve: of an engine that decodes, too (engine.scheduling.settings); None = last.
    prefill_instances, decode_instances: engines behind a proxy, one role each; None = one engine does both.
    routing: which prefill instance gets a request (engine.scheduling.routing.catalogue); None = round_robin.
    slo_fields: how a request states its SLO to the server (harness.loadgen.settings.SLOStyle).
    prefix_cache: a rival's; None = off. extra_flags: words added to a rival's command line.
    without_url: why points are not run where base_url is not given; None = that is a mistake.
    """

    name: str
    series: str
    backend: Literal["engine", "server", "vllm", "sglang"] = "engine"
    policy: str = ""
    batching: str | None = None
    granularity: Granularity | None = None
    preempt: Literal["never", "pause", "restart"] | None = None
    batch_deadline: Literal["head", "earliest_live"] | None = None
    predictor: str | None = None
    alpha: float | None = bounded(default=None, at_least=0, at_most=1)
    token_bound: int | None = bounded(default=None, at_least=1)
    chunk_tokens: int | None = bounded(default=None, at_least=SMALLEST_CHUNK_TOKENS)
    tile_tokens: int | None = bounded(default=None, at_least=1)
    launch_bound_us: int | None = bounded(default=None, at_least=0)
    decode_order: Literal["last", "by_deadline"] | None = None
    decode_reserve: float | None = bounded(default=None, at_least=0, at_most=1)
    prefill_instances: int | None = bounded(default=None, at_least=1, at_most=64)
    decode_instances: int | None = bounded(default=None, at_least=1, at_most=64)
    routing: str | None = None
    base_url: str | None = None
    served_model: str | None = None
    api_key_env: str | None = None
    slo_fields: Literal["fields", "vllm_xargs", "priority_low_first", "priority_high_first", "none"] = "fields"
    prefix_cache: bool | None = None
    extra_flags: tuple[str, ...] | None = None
    without_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The model served. length_scale: tokens sent per trace token.

    checkpoint: a built-in shape (random weights by weights_seed) or a folder in Hugging Face format.
    kv_tokens, max_context_tokens: trace tokens; kv_tokens null in a file = what a simulated accelerator's memory holds
        beside the weights (see simulated_memory.py). block_tokens: tokens of a KV block, as sent (not scaled).
    vocab_tokens: prompts are drawn from ids below it.
    activation_bytes: memory that the executing and the preempted prefills may hold.
    tensor_parallel: ranks the model is split over: a process each, on a CUDA device or a core of its own; None = one.
    """

    name: str
    checkpoint: str
    length_scale: float = bounded(above=0, at_most=1)
    kv_tokens: int = bounded(at_least=1)
    max_context_tokens: int = bounded(at_least=1)
    block_tokens: int = bounded(at_least=1)
    vocab_tokens: int = bounded(at_least=16)
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    dummy_weights: bool = False
    weights_seed: int = bounded(default=0, at_least=0)
    activation_bytes: int = bounded(default=1 << 30, at_least=1)
    tensor_parallel: int | None = bounded(default=None, at_least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    """Where it runs. kind "auto" = CUDA when there is one; "simulated" = nowhere: times come from `simulation`.

    pin: "auto" = the engine on one core, everything else on the others, where there are two.
    profile: a measured profile to use; None = measured once on this machine and kept under outputs/profiles.
    """

    name: str
    kind: Literal["auto", "cpu", "cuda", "simulated"]
    threads: int = bounded(default=1, at_least=1)
    pin: Literal["auto", "off"] = "auto"
    profile: str | None = None
    simulation: SimulatedDeviceSettings | None = None

    def __post_init__(self) -> None:
        if (self.simulation is not None) != (self.kind == "simulated"):
            state = "conflicts with" if self.simulation is not None else "needs"
            raise SettingsError(f"device.kind={self.kind} {state} device.simulation")
        if self.simulation is None:
            return
        if (self.profile is not None) != (self.simulation.model == "profile"):
            state = "conflicts with" if self.profile is not None else "needs"
            raise SettingsError(f"device.simulation.model={self.simulation.model} {state} device.profile")

    @property
    def simulated(self) -> bool:
        """Whether points on it are simulated, not measured."""
        return self.simulation is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """The open-loop load. rate_scale 1 = the trace's own rate in its window (before the SLO speed factor).

    seed: draws the arrivals (unless recorded) and the prompts.
    drain_s: how long after the last request is due answers are waited for; None = until all ended or timed out.
    """

    name: str
    rate_scale: float = bounded(above=0, at_least=1 / LARGEST_FACTOR, at_most=LARGEST_FACTOR)
    seed: int = bounded(at_least=0)
    request_timeout_s: float = bounded(above=0, at_most=LONGEST_S)
    connect_timeout_s: float = bounded(above=0, at_most=LONGEST_S)
    drain_s: float | None = bounded(default=None, above=0, at_most=LONGEST_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolSettings:
    """How a point is measured.

    min_arrivals_s: repeat the window until arrivals last this long at the point's rate, on the paper's device (the
        speed factor stretches it); None = the window once, as published.
    give_up_slo_multiple: the client leaves at this many SLOs; None = it waits.
    discard_first_s: warm-up of the run itself: requests due before are served and in no attainment, no time, no bound
        (stretched as min_arrivals_s is, which it needs); None = all count.
    """

    name: str
    min_arrivals_s: float | None = bounded(default=None, above=0, at_most=LONGEST_S)
    give_up_slo_multiple: float | None = bounded(default=None, at_least=1, at_most=LARGEST_FACTOR)
    discard_first_s: float | None = bounded(default=None, above=0, at_most=LONGEST_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSettings:
    """One measured point: one row of a table. slo_scale: every SLO times this."""

    experiment: str
    system: SystemSettings
    model: ModelSettings
    device: DeviceSettings
    workload: WorkloadSettings
    slo: SLOSettings
    slo_scale: float
    load: LoadSettings
    protocol: ProtocolSettings

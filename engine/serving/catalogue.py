"""The names a user can choose from, and what each stands for. A new policy is one line here."""

from collections.abc import Callable, Mapping
from typing import Final

from baselines.policies.chunked_prefill import ChunkBatching
from baselines.policies.distserve import TokenLimitedBatching
from baselines.policies.request_restart import RequestRestart
from baselines.policies.step_rules import BegunFirst
from engine.core.ports import Batching, Policy, Predictor
from engine.scheduling.batching import NoBatching, SLOAwareBatching
from engine.scheduling.policies.edf import EDF
from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.policies.srpt import SRPT
from engine.scheduling.predictors.operator_sum import OperatorSumPredictor, decoder_counts
from engine.scheduling.predictors.polynomial import fit
from engine.serving.settings import EngineSettings, SettingsError
from engine.serving.timings import Timings

POLICIES: Final[Mapping[str, Callable[[], Policy]]] = {
    "s_edf": SlackEDF,
    "edf": EDF,
    "fcfs": FCFS,
    "srpt": SRPT,
}
BATCHINGS: Final[Mapping[str, Callable[[EngineSettings], Batching]]] = {
    "none": lambda _: NoBatching(),
    "slo_aware": lambda settings: SLOAwareBatching(settings.alpha, settings.token_bound),
    "token_limited": lambda settings: TokenLimitedBatching(settings.token_bound),
    "chunked": lambda settings: ChunkBatching(settings.chunk_tokens),
    "vllm_like": lambda settings: ChunkBatching(settings.chunk_tokens, overtake=False),
    "sglang_like": lambda settings: ChunkBatching(settings.chunk_tokens, overtake=False),
}
ORDER_OF_STEPS: Final[Mapping[str, Callable[[Policy], Policy]]] = {"vllm_like": BegunFirst, "sglang_like": BegunFirst}
"""What a batching rule that is a whole step rule makes of the policy's order."""
PREEMPT_MODES: Final[Mapping[str, Callable[[Policy], Policy]]] = {
    "pause": lambda policy: policy,
    "never": NonPreemptive,
    "restart": RequestRestart,
}


def _operator_sum(timings: Timings) -> OperatorSumPredictor:
    kinds = {sample.operator for sample in timings.operators}
    return OperatorSumPredictor(timings.operators, decoder_counts(timings.layers, kinds))


PREDICTORS: Final[Mapping[str, Callable[[Timings], Predictor]]] = {
    "polynomial": lambda timings: fit(timings.prefills),
    "operator_sum": _operator_sum,
}
GRANULARITIES: Final = ("none", "layer", "half_layer", "operator", "tile")
BATCH_DEADLINES: Final = ("earliest_live", "head")
DECODE_ORDERS: Final = ("last", "by_deadline")
DEVICES: Final = ("auto", "cpu", "cuda")
DTYPES: Final = ("auto", "float32", "bfloat16", "float16")
ATTENTIONS: Final = ("auto", "sdpa", "torch_varlen", "flash_attn", "flashinfer", "avx512")


def check(settings: EngineSettings) -> None:
    """Raise SettingsError for a name that is not in the tables, listing those that are."""
    for flag, value, known in (
        ("--policy", settings.policy, POLICIES),
        ("--batching", settings.batching, BATCHINGS),
        ("--preempt", settings.preempt, PREEMPT_MODES),
        ("--predictor", settings.predictor, PREDICTORS),
        ("--granularity", settings.granularity, GRANULARITIES),
        ("--batch-deadline", settings.batch_deadline, BATCH_DEADLINES),
        ("--decode-order", settings.decode_order, DECODE_ORDERS),
        ("--device", settings.device, DEVICES),
        ("--dtype", settings.dtype, DTYPES),
        ("--attention", settings.attention, ATTENTIONS),
    ):
        if value not in known:
            raise SettingsError(f"{flag}: there is no {value!r}; choose from {', '.join(known)}")


def build_policy(settings: EngineSettings) -> Policy:
    """The policy, in the order its step rule asks for, with what happens to the executing prefill."""
    policy = POLICIES[settings.policy]()
    if settings.batching in ORDER_OF_STEPS:
        policy = ORDER_OF_STEPS[settings.batching](policy)
    return PREEMPT_MODES[settings.preempt](policy)


def build_batching(settings: EngineSettings) -> Batching:
    """The batching rule."""
    return BATCHINGS[settings.batching](settings)


def build_predictor(settings: EngineSettings, timings: Timings) -> Predictor:
    """The predictor, fitted to what was measured. Raises SettingsError when that does not suffice."""
    try:
        return PREDICTORS[settings.predictor](timings)
    except ValueError as error:
        raise SettingsError(f"--predictor {settings.predictor} cannot be fitted: {error}") from error

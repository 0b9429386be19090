"""The bytes of one request, made before the clock starts."""

import json
from dataclasses import dataclass

from engine.core.clock import ns_to_seconds
from engine.core.trace import PlannedRequest
from harness.loadgen.settings import PlayerSettings, SLOStyle, Target

LEAST_URGENT = 1_000_000_000
"""Of a request without an SLO: as if it had eleven days."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A planned request and its serialised body."""

    plan: PlannedRequest
    body: bytes


def prepare(plan: PlannedRequest, target: Target, settings: PlayerSettings) -> PreparedRequest:
    """Serialise one request. The prompt goes as token ids, so that no text round trip changes its length."""
    return PreparedRequest(plan, json.dumps(body_fields(plan, target, settings)).encode())


def body_fields(plan: PlannedRequest, target: Target, settings: PlayerSettings) -> dict[str, object]:
    """The body of /v1/completions as a dict."""
    fields: dict[str, object] = {"temperature": 0}
    fields.update(slo_fields(plan, target.slo_style))
    fields.update(settings.extra_fields)
    fields.update(
        model=target.model,
        prompt=list(plan.token_ids),
        max_tokens=plan.max_tokens,
        stream=True,
        stream_options={"include_usage": True},
        ignore_eos=settings.ignore_eos,
    )
    return fields


def slo_fields(plan: PlannedRequest, style: SLOStyle) -> dict[str, object]:
    """How the body states the SLO; objectives the request lacks are left out."""
    ttft_s = None if plan.slo.ttft_ns is None else ns_to_seconds(plan.slo.ttft_ns)
    tbt_s = None if plan.slo.tbt_ns is None else ns_to_seconds(plan.slo.tbt_ns)
    if style is SLOStyle.FIELDS:
        stated = {"ttft_slo_s": ttft_s, "tbt_slo_s": tbt_s, "task": plan.task or None}
        return {name: value for name, value in stated.items() if value is not None}
    if style is SLOStyle.VLLM_XARGS:
        stated = {"ttft_slo": ttft_s, "tbt_slo": tbt_s}
        known = {name: value for name, value in stated.items() if value is not None}
        return {"vllm_xargs": known} if known else {}
    if style is SLOStyle.PRIORITY_LOW_FIRST:
        return {"priority": urgency(plan)}
    if style is SLOStyle.PRIORITY_HIGH_FIRST:
        return {"priority": -urgency(plan)}
    return {}


def urgency(plan: PlannedRequest) -> int:
    """The SLO class as a number, smaller = more urgent: its TTFT SLO in ms; without one a request comes last."""
    return LEAST_URGENT if plan.slo.ttft_ns is None else min(LEAST_URGENT, round(plan.slo.ttft_ns / 1e6))

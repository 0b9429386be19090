"""Before the run: wait for one real token of the expected model, then warm the server up. Kept apart from records."""

import asyncio
import collections.abc as c
import dataclasses
import time

from engine.core.record import RequestRecord, Status
from engine.core.slo import SLO
from engine.core.trace import PlannedRequest
from harness.loadgen.client import CompletionsClient, Exchange
from harness.loadgen.errors import ServerNotReadyError, ServerRefusesError
from harness.loadgen.request_body import prepare
from harness.loadgen.settings import PlayerSettings, Target

NO_SLO = SLO()


async def wait_until_ready(
    target: Target,
    deadline_s: float,
    *,
    prompt: c.Sequence[int] = (1, 2, 3, 4),
    poll_s: float = 0.25,
    slo: SLO = NO_SLO,
    runs_already: bool = False,
) -> None:
    """Return once the server has given one real token of `target.model`.

    prompt: token ids the model knows. poll_s: between tries. slo: stated as the run's requests state theirs.
    runs_already: nothing is starting, so that only an answer that says it is busy (429, 503) is worth another try.
    Raises ServerNotReadyError after `deadline_s` with the last answer's reason; ServerRefusesError at once when another
    model answers, or a server that runs already refuses.
    """
    deadline = time.monotonic() + deadline_s
    plan = PlannedRequest("readiness", 0, tuple(prompt), 1, slo)
    reason: str | None = None
    while (left_s := deadline - time.monotonic()) > 0:
        settings = PlayerSettings(request_timeout_s=left_s, connect_timeout_s=left_s, drain_s=0, ignore_eos=False)
        async with CompletionsClient(target, settings) as client:
            exchange = _exchange(plan, target, settings)
            await client.send(exchange)
        if exchange.status is Status.OK:
            _check_model(exchange.reply.model, target)
            return
        if reason is None or exchange.status is not Status.TIMED_OUT:  # cut off by the deadline is no answer
            reason = exchange.reason
        if runs_already and exchange.status not in (Status.REJECTED, Status.TIMED_OUT):
            raise ServerRefusesError(f"{target.base_url} gave no token: {reason}", reason, exchange.http_status)
        await asyncio.sleep(min(poll_s, max(0.0, deadline - time.monotonic())))
    raise ServerNotReadyError(
        f"no token of model {target.model!r} from {target.base_url} within {deadline_s:g} s; "
        f"last answer: {reason or 'not tried'}"
    )


async def warm_up(
    requests: c.Sequence[PlannedRequest], target: Target, settings: PlayerSettings
) -> tuple[RequestRecord, ...]:
    """Send requests one after the other, without regard to their due instants.

    They state no SLO and never give up. Raises ServerNotReadyError when one fails: a run would only fail later.
    """
    patient = dataclasses.replace(settings, give_up_slo_multiple=None)
    records = []
    async with CompletionsClient(target, patient) as client:
        for plan in requests:
            plan = dataclasses.replace(plan, slo=SLO())
            exchange = _exchange(plan, target, patient)
            await client.send(exchange)
            if exchange.status is not Status.OK:
                raise ServerNotReadyError(
                    f"warm-up request {plan.request_id} of {len(plan.token_ids)} tokens ended "
                    f"{exchange.status}: {exchange.reason}"
                )
            records.append(exchange.record(exchange.due_at_ns))
    return tuple(records)


def _exchange(plan: PlannedRequest, target: Target, settings: PlayerSettings) -> Exchange:
    return Exchange(prepare(plan, target, settings), time.monotonic_ns(), settings.ignore_eos)


def _check_model(answered: str | None, target: Target) -> None:
    if answered != target.model:
        who = "does not name its model" if answered is None else f"serves model {answered!r}"
        raise ServerRefusesError(f"{target.base_url} {who}; asked for {target.model!r}", answered_model=answered)

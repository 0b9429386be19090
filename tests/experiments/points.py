"""Points made by hand for tests of what surrounds a measurement."""

import json
from collections.abc import Sequence
from typing import Any

from engine.core.record import ClientReport, RequestRecord, Status
from harness.experiments.compose import outside_hydra
from harness.experiments.prepare import Prepared, Preparer
from harness.measurement.store import Point

TINY = ("model=cpu_tiny", "device=cpu", "device.pin=off", "workload.window_s=6", "workload.arrivals=poisson")


def prepared(profile: str, *overrides: str, axes: Sequence[dict[str, Any]] = ({},)) -> list[Prepared]:
    """Points ready to run, on a profile given."""
    with outside_hydra() as make:
        job = make([*TINY, "experiment=smoke", f"device.profile={profile}", *overrides])
        preparer = Preparer(lambda _: None, job.user)
        return [preparer.prepare(job.compose(one)) for one in axes]


def measured(ready: Prepared, *, met: int = 1, missed: int = 0, interrupted: bool = False) -> Point:
    """A point as a run would leave it."""
    records = tuple(
        RequestRecord(
            request_id=f"r{i}",
            task="text",
            prompt_tokens=8,
            max_tokens=1,
            ttft_slo_ns=100,
            tbt_slo_ns=None,
            due_at_ns=0,
            sent_at_ns=1,
            first_token_at_ns=50 if i < met else 500,
            last_token_at_ns=50 if i < met else 500,
            output_tokens=1,
            status=Status.OK,
        )
        for i in range(met + missed)
    )
    client = ClientReport(len(records), len(records), 10**9, 1.0, 1.0, interrupted=interrupted)
    return Point(ready.facts(1.0), {}, {}, records, None, client)


def profile_text(seconds_per_token: float = 0.0001, device: str = "a test's device") -> str:
    """A profile in which time is proportional to length."""
    lengths = (1, 64, 256, 512)
    entries = [{"new_tokens": n, "context_tokens": 0, "seconds": n * seconds_per_token} for n in lengths]
    return json.dumps({"model": "cpu_tiny", "device": device, "torch": "0", "prefill": entries, "operators": []})

"""What a server can do on this machine: its unloaded TTFT by prompt length, and the requests per second of a backlog.

Measured by the client, in the same way for our engine and for a rival, and kept as one file per server and chunk size.
"""

import dataclasses
import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.core.clock import NS_PER_S
from engine.core.record import RequestRecord, Status
from engine.core.slo import SLO
from engine.core.trace import PlannedRequest
from harness.assembly.requests import LoadedTrace, plan_point, speed_factor
from harness.experiments.fingerprint import HASH_DIGITS, fingerprint, slug
from harness.experiments.measure import player_settings, recorded_settings
from harness.experiments.prepare import Prepared
from harness.experiments.profile_step import interpolate
from harness.experiments.provenance import provenance
from harness.experiments.servers import ServerFailedError, Serving
from harness.loadgen.player import play
from harness.loadgen.warmup import warm_up
from harness.measurement.table_file import write_whole
from workloads.prompts import PromptSettings, make_prompts


@dataclasses.dataclass(frozen=True, slots=True)
class CurveSettings:
    """tokens: prompt lengths as sent, one request at a time. repeats: of each. backlog_requests: of a backlog."""

    tokens: tuple[int, ...]
    repeats: int
    backlog_requests: int


@dataclasses.dataclass(frozen=True, slots=True)
class Calibration:
    """ttft_s: by prompt tokens as sent, one value per repeat, in order.

    capacity_rps: completed requests per second of a backlog, all due at once and without SLOs.
    capacity_tokens_per_s: their prompt tokens over the same time.
    """

    ttft_s: Mapping[int, tuple[float, ...]]
    capacity_rps: float
    capacity_tokens_per_s: float

    def seconds(self, tokens: int) -> float:
        """Unloaded TTFT of a prompt of so many tokens as sent: straight lines between the medians."""
        return interpolate(sorted((n, statistics.median(values)) for n, values in self.ttft_s.items()), tokens)

    def slo_speed_factor(self, ready: Prepared, loaded: LoadedTrace) -> float:
        """As of our engine's profile, from this curve: the window's unloaded TTFT over that of the published curve."""
        return float(f"{speed_factor(ready.settings, loaded, self.seconds):.9g}")


def calibration_path(folder: Path, ready: Prepared, asked: CurveSettings) -> Path:
    """Named by all that decides it; seed and rate of the point are those of the experiment file for every server."""
    content = f"{fingerprint(ready.settings, ready.given)} {json.dumps(dataclasses.asdict(asked), sort_keys=True)}"
    digest = hashlib.sha256(content.encode()).hexdigest()[:HASH_DIGITS]
    chunk = ready.settings.system.chunk_tokens
    stem = slug(ready.settings.system.name) + ("" if chunk is None else f"-c{chunk}")
    return folder / f"calibration-{stem}-{digest}.json"


def read_calibration(path: Path) -> Calibration | None:
    """None where there is none, or not a whole one: it is measured again."""
    try:
        content = json.loads(path.read_bytes())
        curve = {int(tokens): tuple(map(float, values)) for tokens, values in content["ttft_s"].items()}
        return Calibration(curve, float(content["capacity_rps"]), float(content["capacity_tokens_per_s"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


async def calibrate(ready: Prepared, serving: Serving, asked: CurveSettings, path: Path) -> Calibration:
    """Measure and keep. The first pass over the lengths warms the server up and is not counted.

    Raises ServerNotReadyError, ServerFailedError where a request fails.
    """
    await warm(ready, serving, asked)
    curve: dict[int, list[float]] = {tokens: [] for tokens in asked.tokens}
    for repeat in range(asked.repeats):
        for record in await warm_up(_unloaded(ready, asked, f"curve{repeat}"), serving.target, player_settings(ready)):
            curve[record.prompt_tokens].append(_ttft_s(record))
    rps, tokens_per_s = await _capacity(ready, serving, asked.backlog_requests)
    found = Calibration({tokens: tuple(values) for tokens, values in curve.items()}, rps, tokens_per_s)
    content = {
        **dataclasses.asdict(found),
        "asked": dataclasses.asdict(asked),
        "settings": recorded_settings(ready),
        "provenance": provenance(
            {},
            device=ready.device,
            server_command=list(serving.command) if serving.rival else ["python", *serving.command],
            **({"rival": dict(serving.rival)} if serving.rival else {}),
        ),
    }
    write_whole(path, (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())
    return found


async def warm(ready: Prepared, serving: Serving, asked: CurveSettings) -> None:
    """One request of every length: what a server does only once after its start is done then."""
    await warm_up(_unloaded(ready, asked, "warm"), serving.target, player_settings(ready))


def _unloaded(ready: Prepared, asked: CurveSettings, content: str) -> list[PlannedRequest]:
    """One request per length. content: other tokens under another name, so that no prefix cache finds them."""
    prompts = make_prompts(asked.tokens, PromptSettings(ready.settings.model.vocab_tokens, content=content), seed=0)
    return [PlannedRequest(f"{content}-{len(ids)}", 0, ids, 1, SLO()) for ids in prompts]


async def _capacity(ready: Prepared, serving: Serving, count: int) -> tuple[float, float]:
    planned = plan_point(ready.settings, ready.window, ready.given.slo_speed_factor)
    chosen = evenly(planned, count)
    backlog = [dataclasses.replace(request, due_ns=0, slo=SLO()) for request in chosen]
    records = (await play(backlog, serving.target, player_settings(ready))).records
    failed = [record for record in records if record.status is not Status.OK]
    if failed:
        first = failed[0]
        raise ServerFailedError(f"{len(failed)} requests of the backlog failed; {first.request_id}: {first.reason}")
    took_s = max(record.last_token_at_ns or 0 for record in records) / NS_PER_S
    return len(records) / took_s, sum(record.prompt_tokens for record in records) / took_s


def evenly(planned: Sequence[PlannedRequest], count: int) -> list[PlannedRequest]:
    """So many of them, at equal steps from the shortest prompt to the longest, in their own order.

    Drawn at random, a few long prompts more or less would move the capacity by half.
    """
    if count >= len(planned):
        return list(planned)
    by_length = sorted(range(len(planned)), key=lambda i: len(planned[i].token_ids))
    middles = [(2 * k + 1) * len(planned) // (2 * count) for k in range(count)]
    return [planned[i] for i in sorted(by_length[middle] for middle in middles)]


def _ttft_s(record: RequestRecord) -> float:
    assert record.first_token_at_ns is not None
    assert record.sent_at_ns is not None
    return (record.first_token_at_ns - record.sent_at_ns) / NS_PER_S

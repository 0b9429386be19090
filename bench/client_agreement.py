"""TTFT as other people's clients report it, beside ours and beside the server's own instants, on one run of our engine.

python -m bench.client_agreement. Per client and rate: the other client sends; then ours sends requests of the same
lengths at the same gaps, as the server saw them arrive. Poisson arrivals. The server's own instants are those of its
decision log, from a request's arrival in the HTTP process to its first token in the engine. Exit code 1 when the median
of an other client and ours differ by 5 ms or more anywhere. Needs `make env-vllm env-sglang`; with two cores the engine
has the first, all the rest the others.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from baselines.servers.process import ServerProcessError
from bench.other_clients import CLIENTS, ClientError, Load, OtherClient
from bench.prefill_vs_servers import Plan, Server, ours
from engine.core.clock import NS_PER_MS
from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command
from engine.core.events import Arrival, Completion
from engine.core.slo import SLO
from engine.core.trace import PlannedRequest
from engine.scheduling.decision_log import LoggedCall, read
from engine.torch_backend.checkpoint_folder import write_checkpoint
from harness.assembly.settings import DeviceSettings
from harness.experiments.machine import cpu_model, pinned, share_cores
from harness.experiments.provenance import commit
from harness.loadgen.errors import ServerNotReadyError
from harness.loadgen.player import play
from harness.loadgen.settings import PlayerSettings, ShowProgress, Target
from harness.loadgen.warmup import warm_up
from harness.measurement.latency import measured, ttft_from_send_ns
from harness.measurement.table_file import merge_rows
from workloads.prompts import PromptSettings, make_prompts

APART_MS = 5.0
PUSHES, PUSH_TOKENS = 100, 16
"""The log is written in blocks of 8 KB: so many short requests, of 200 bytes or more, push out what was before."""
COLUMNS = (
    "point", "client", "version", "rate_rps", "requests", "prompt_tokens_mean", "max_tokens", "their_p50_ms",
    "our_p50_ms", "difference_ms", "server_p50_of_theirs_ms", "server_p50_of_ours_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One request in the server's decision log. first_token_at_ns: None while it has none."""

    arrived_at_ns: int
    prompt_tokens: int
    max_tokens: int
    first_token_at_ns: int | None

    @property
    def ttft_ms(self) -> float:
        """From arrival to first token. Raises ValueError without one."""
        if self.first_token_at_ns is None:
            raise ValueError("a request has no first token")
        return (self.first_token_at_ns - self.arrived_at_ns) / NS_PER_MS


@dataclass(frozen=True, slots=True)
class Round:
    """A client and ours, one after the other. Windows: first and last instant at which their requests arrived."""

    client: str
    version: str
    load: Load
    their_ttfts_ms: Sequence[float]
    our_ttfts_ms: Sequence[float]
    their_window: tuple[int, int]
    our_window: tuple[int, int]

    def row(self, served: Sequence[ServedRequest]) -> dict[str, Any]:
        """Of the table; medians in ms."""
        theirs, own = (within(served, window) for window in (self.their_window, self.our_window))
        if not len(theirs) == len(own) == len(self.their_ttfts_ms) == len(self.our_ttfts_ms):
            raise ValueError(f"{self.client}: the server counts {len(theirs)} of its requests and {len(own)} of ours")
        their_ms, our_ms = median(self.their_ttfts_ms), median(self.our_ttfts_ms)
        return {
            "client": self.client,
            "version": self.version,
            "rate_rps": self.load.rate_rps,
            "requests": len(theirs),
            "prompt_tokens_mean": sum(each.prompt_tokens for each in theirs) / len(theirs),
            "max_tokens": self.load.max_tokens,
            "their_p50_ms": their_ms,
            "our_p50_ms": our_ms,
            "difference_ms": their_ms - our_ms,
            "server_p50_of_theirs_ms": median(each.ttft_ms for each in theirs),
            "server_p50_of_ours_ms": median(each.ttft_ms for each in own),
        }


def requests_of(calls: Iterable[LoggedCall]) -> list[ServedRequest]:
    """Every request of a decision log, in order of arrival."""
    arrivals: dict[str, Arrival] = {}
    first_at_ns: dict[str, int] = {}
    for event in (event for call in calls for event in call.events):
        if isinstance(event, Arrival):
            arrivals[event.request.request_id] = event
        elif isinstance(event, Completion):
            for output in event.outputs:
                if output.token_id is not None:
                    first_at_ns.setdefault(output.request_id, event.at_ns)
    found = [
        ServedRequest(
            each.request.arrived_at_ns, each.request.prompt_tokens, each.request.max_tokens, first_at_ns.get(id_)
        )
        for id_, each in arrivals.items()
    ]
    return sorted(found, key=lambda each: each.arrived_at_ns)


def within(served: Sequence[ServedRequest], window: tuple[int, int]) -> list[ServedRequest]:
    """Those that arrived in it."""
    return [each for each in served if window[0] <= each.arrived_at_ns <= window[1]]


def read_log(path: Path) -> list[ServedRequest]:
    """What of the log is out; a last line that is not whole does not count."""
    text = path.read_text(encoding="utf-8")
    return requests_of(read(text[: text.rfind("\n") + 1].splitlines())[1])


def same_again(served: Sequence[ServedRequest], vocab: int, content: str) -> list[PlannedRequest]:
    """Requests of the same lengths at the same gaps, other prompts."""
    prompts = make_prompts([each.prompt_tokens for each in served], PromptSettings(vocab, content=content), seed=0)
    return [
        PlannedRequest(f"r{i}", each.arrived_at_ns - served[0].arrived_at_ns, prompt, each.max_tokens, SLO())
        for i, (each, prompt) in enumerate(zip(served, prompts, strict=True))
    ]


async def sent_by_us(target: Target, requests: Sequence[PlannedRequest]) -> list[float]:
    """Milliseconds from sending to the first token."""
    settings = PlayerSettings(request_timeout_s=120, drain_s=120, progress=ShowProgress.OFF)
    result = await play(requests, target, settings)
    return [ttft_ns / NS_PER_MS for ttft_ns in measured(ttft_from_send_ns(record) for record in result.records)]


async def push_log(target: Target, content: str) -> None:
    """Short requests, so that everything logged so far is out of the server's buffer."""
    prompts = make_prompts([PUSH_TOKENS] * PUSHES, PromptSettings(4096, content=content), seed=1)
    plans = [PlannedRequest(f"push{i}", 0, prompt, 1, SLO()) for i, prompt in enumerate(prompts)]
    await warm_up(plans, target, PlayerSettings(request_timeout_s=60, drain_s=60, progress=ShowProgress.OFF))


def one_round(client: OtherClient, version: str, load: Load, vocab: int, log: Path, folder: Path) -> Round:
    """The other client, then ours. Raises ClientError, ValueError when the log does not hold its requests."""
    target = Target(load.base_url, load.model)
    content = f"{client.name}-{load.rate_rps}-{time.monotonic_ns()}"
    started_ns = time.monotonic_ns()
    their_ttfts_s = client.run(load, folder)
    ended_ns = time.monotonic_ns()
    asyncio.run(push_log(target, content))
    # Before the ones it reports, a client may send others that only try the server.
    theirs = within(read_log(log), (started_ns, ended_ns))[-load.requests :]
    if len(theirs) < load.requests:
        raise ValueError(f"{client.name}: the server's log holds {len(theirs)} of {load.requests} requests")
    plans = same_again(theirs, vocab, content)
    our_start_ns = time.monotonic_ns()
    our_ttfts_ms = asyncio.run(sent_by_us(target, plans))
    our_window = (our_start_ns, time.monotonic_ns())
    their_window = (theirs[0].arrived_at_ns, ended_ns)
    return Round(
        client.name, version, load, [1e3 * each for each in their_ttfts_s], our_ttfts_ms, their_window, our_window
    )


def run_all(given: argparse.Namespace, server: Server, plan: Plan, log: Path) -> list[Round]:
    """Every client that is there, at every rate."""
    vocab = int(json.loads((plan.folder / "config.json").read_text())["vocab_size"])
    rounds = []
    for client in (each for each in CLIENTS if each.name in given.clients):
        try:
            version = client.version()
            for rate_rps in given.rates:
                load = Load(
                    f"http://127.0.0.1:{server.port}",
                    server.model,
                    rate_rps,
                    given.requests,
                    given.tokens,
                    given.max_tokens,
                )
                print(f"{client.name} {version}, {rate_rps:g} requests/s", file=sys.stderr, flush=True)
                rounds.append(one_round(client, version, load, vocab, log, plan.logs))
        except ClientError as error:
            print(f"{client.name}: not run: {error}", file=sys.stderr)
    return rounds


def tell(row: Mapping[str, Any]) -> bool:
    """One line; whether the two agree."""
    print(
        f"{row['client']} {row['version']}, {row['rate_rps']:g} requests/s, {row['requests']} requests: theirs "
        f"{row['their_p50_ms']:.2f} ms, ours {row['our_p50_ms']:.2f} ms, {row['difference_ms']:+.2f} ms; by the "
        f"server's instants {row['server_p50_of_theirs_ms']:.2f} and {row['server_p50_of_ours_ms']:.2f} ms"
    )
    return abs(row["difference_ms"]) < APART_MS


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = OneSentenceParser(
        prog="python -m bench.client_agreement",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [client.name for client in CLIENTS]
    parser.add_argument("--folder", type=Path, default=Path("checkpoints/cpu_demo"), help="written first if absent")
    parser.add_argument("--clients", nargs="+", choices=names, default=names)
    parser.add_argument("--rates", type=float, nargs="+", default=[2.0, 6.0], help="requests per second")
    parser.add_argument("--requests", type=int, default=40, help="of each client at each rate")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--max-tokens", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("results/tables/client_agreement.csv"))
    given = parser.parse_args(arguments)
    if not given.folder.is_dir():
        write_checkpoint("cpu_demo", given.folder)
    cores = share_cores(DeviceSettings(name="cpu", kind="cpu", threads=1))
    measured_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        log = Path(folder) / "decisions.jsonl"
        plan = Plan(given.folder, max(1024, 2 * given.tokens), given.tokens, 1, cores, Path(folder))
        try:
            with ours(plan, ["--decision-log", str(log)]) as server, pinned(cores.others):
                rounds = run_all(given, server, plan, log)
            served = read_log(log)
            rows = [each.row(served) for each in rounds]
        except (ServerNotReadyError, ServerProcessError, ValueError, OSError) as error:
            print(f"client_agreement: {error}", file=sys.stderr)
            return MISTAKE_STATUS
    code = commit()
    origin = {"commit": code["commit"], "dirty": code["dirty"], "device": cpu_model(), "measured_at": measured_at}
    rows = [
        {"point": f"{row['client']}-{row['rate_rps']:g}".replace(",", "").replace(" ", "_"), **row, **origin}
        for row in rows
    ]
    if rows:
        merge_rows(given.out, rows, COLUMNS)
    agreed = [tell(row) for row in rows]
    return 0 if agreed and all(agreed) else 1


if __name__ == "__main__":
    sys.exit(run_command(main))

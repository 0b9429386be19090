"""The plugin for stock vLLM (integrations/vllm_flowprefill) on one core: what a short prompt waits for, what it costs.

python -m bench.vllm_plugin. Needs `make env-vllm`. Stock vLLM and the plugin at every granularity live side by side,
one is asked at a time, in turns: (a) TTFT of a 64-token prompt 0.3 s behind one of 8192 tokens, against one longest
operator, its own prefill and 10 %; (b) mean blocking of arrivals at random instants, by granularity; (c) prefill and
decode throughput with hooks and nobody to preempt, over stock order in the same processes. Steps hold the whole long
prompt, with `chunk` --chunk-step-tokens of it. Exit code 1 where something does not hold. About 15 minutes.
"""

import argparse
import asyncio
import contextlib
import itertools
import signal
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from baselines.servers.environments import NoEnvironmentError
from baselines.servers.process import ServerProcessError
from bench.prefill_vs_servers import Plan
from bench.vllm_plugin.servers import CHUNK, HALF_LAYER, LAYER, NAMES, NONE, OPERATOR, STOCK, Server, all_servers
from bench.vllm_plugin.table import COLUMNS, Line, mean, mean_of_rounds, ratio
from bench.vllm_plugin.throughput import in_turns
from bench.vllm_plugin.waiting import behind, blocking, longest, operator_seconds
from engine.core.command_line import OneSentenceParser, run_command
from engine.torch_backend.checkpoint_folder import write_checkpoint
from harness.assembly.settings import DeviceSettings
from harness.experiments.machine import pinned, share_cores
from harness.loadgen.errors import ServerNotReadyError
from harness.measurement.table_file import Row, read_table, write_table

SPEEDS = (NONE, OPERATOR, STOCK)
FINER = (OPERATOR, HALF_LAYER, LAYER, CHUNK)
MARGIN = 1.1
LEAST_KEPT = 0.98
DECODE_PROMPT, DECODE_OUTPUT = 16, 128


async def waits(servers: Mapping[str, Server], given: argparse.Namespace, lines: list[Line]) -> dict[str, float]:
    """(a): lines, and the long prompt's median seconds by server."""
    asked = {name: one for name, one in servers.items() if name != NONE}
    passes = [await operator_seconds(servers[OPERATOR], given.long, given.short) for _ in range(given.passes)]
    label, operator_s = longest(passes)
    timed = [one[label] for one in passes if label in one]
    lines.append(mean(f"longest operator, {label}", OPERATOR, given.long, timed, "s"))
    waited, alone, long_s = await behind(asked, given.long, given.short, given.after_s, given.repeats)
    for name in asked:
        bound = MARGIN * (operator_s + statistics.median(alone[name]))
        lines.append(mean("ttft behind a long prompt", name, given.short, waited[name], "s"))
        lines.append(mean("ttft alone", name, given.short, alone[name], "s"))
        lines.append(Line("bound", name, given.short, len(timed), bound, None, None, None, "s"))
        lines.append(mean("ttft of the long prompt", name, given.long, long_s[name], "s"))
    return {name: statistics.median(values) for name, values in long_s.items()}


async def blocked(
    servers: Mapping[str, Server], given: argparse.Namespace, long_s: Mapping[str, float], lines: list[Line]
) -> None:
    """(b)."""
    found = await blocking(
        {name: servers[name] for name in FINER}, given.long, given.short, given.rounds, given.each, long_s
    )
    for name in FINER:
        lines.append(mean_of_rounds("blocking", name, given.long, found[name], "s"))
    for fine, coarse in itertools.pairwise(FINER):
        less = [
            [c - f for c, f in zip(coarser, finer, strict=True)]
            for coarser, finer in zip(found[coarse], found[fine], strict=True)
        ]
        lines.append(mean_of_rounds("blocking, difference", f"{coarse} - {fine}", given.long, less, "s"))


async def speeds(servers: Mapping[str, Server], given: argparse.Namespace, lines: list[Line]) -> None:
    """(c). Hooks and no hooks take turns alone, so that the two of a pair are neighbours; stock vLLM in fewer pairs."""
    parts = [("prefill", tokens, 1, pairs) for tokens, pairs in zip(given.tokens, given.pairs, strict=True)]
    for what, prompt, output, pairs in [*parts, ("decode", DECODE_PROMPT, DECODE_OUTPUT, given.decode_pairs)]:
        tokens = prompt if output == 1 else output
        for name, count in ((OPERATOR, pairs), (STOCK, max(2, pairs // 4))):
            found = await in_turns({one: servers[one] for one in (NONE, name)}, prompt, output, count)
            shown = (NONE, OPERATOR) if name == OPERATOR else (STOCK,)
            lines += [mean(f"{what} throughput", one, tokens, found[one], "tokens/s") for one in shown]
            both = list(zip(found[name], found[NONE], strict=True))
            lines.append(ratio(f"{what} throughput kept", f"{name} / {NONE}", tokens, both))


def faults(lines: Sequence[Line]) -> list[str]:
    """What does not hold, a sentence each."""
    by = {(line.measure, line.server, line.tokens): line for line in lines}
    found = []
    for line in lines:
        if line.measure == "ttft behind a long prompt" and line.server == OPERATOR:
            bound = by["bound", OPERATOR, line.tokens].value
            if line.largest is not None and line.largest > bound:
                found.append(f"a TTFT of {line.largest:.3g} s at operators is above the bound of {bound:.3g} s")
        if line.measure == "blocking, difference" and (line.low is None or line.low <= 0):
            found.append(f"blocking: {line.server} is not above 0 in the whole interval")
        kept = line.measure.endswith("kept") and line.server.startswith(OPERATOR)
        if kept and (line.low is None or line.low < LEAST_KEPT):
            found.append(f"{line.measure}, {line.tokens} tokens: the interval begins below {LEAST_KEPT}")
    return found


async def measure(servers: Mapping[str, Server], given: argparse.Namespace) -> list[Line]:
    """Everything, told and written as it comes; throughput alone leaves the other rows of an earlier run in place."""
    lines: list[Line] = []
    kept: list[Row] = []
    if given.throughput_only and given.out.is_file():
        kept = [dict(row) for row in read_table(given.out) if "throughput" not in str(row["measure"])]

    def tell(after: int) -> int:
        for line in lines[after:]:
            print(line.text(), flush=True)
        write_table(given.out, [*kept, *(line.row() for line in lines)], COLUMNS)
        return len(lines)

    await in_turns(servers, given.long, 1, 0)
    await in_turns(servers, given.short, 1, 4)
    told = 0
    if not given.throughput_only:
        long_s = await waits(servers, given, lines)
        told = tell(told)
        await blocked(servers, given, long_s, lines)
        told = tell(told)
    await speeds(servers, given, lines)
    tell(told)
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status."""
    given = options().parse_args(arguments)
    if len(given.tokens) != len(given.pairs):
        print("vllm_plugin: --tokens and --pairs need as many values as each other", file=sys.stderr)
        return 2
    if not given.folder.is_dir():
        write_checkpoint("cpu_demo", given.folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped in order, too
    cores = share_cores(DeviceSettings(name="cpu", kind="cpu", threads=1))
    context_tokens = max(given.long, *given.tokens) + 128
    with tempfile.TemporaryDirectory(prefix="bench-") as logs, contextlib.ExitStack() as held:
        plan = Plan(given.folder, context_tokens, max(given.long, *given.tokens), 1, cores, Path(logs))
        try:
            servers = held.enter_context(
                all_servers(plan, given.chunk_step_tokens, SPEEDS if given.throughput_only else NAMES)
            )
            held.enter_context(pinned(cores.others))
            lines = asyncio.run(measure(servers, given))
        except (NoEnvironmentError, ServerProcessError, ServerNotReadyError, ValueError, OSError) as error:
            print(f"vllm_plugin: {error}", file=sys.stderr)
            return 2
    print(f"wrote {given.out}")
    wrong = faults(lines)
    for sentence in wrong:
        print(f"does not hold: {sentence}")
    return 1 if wrong else 0


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = OneSentenceParser(
        prog="python -m bench.vllm_plugin", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("checkpoints/cpu_demo"), help="written first if absent")
    parser.add_argument("--out", type=Path, default=Path("results/tables/vllm_plugin_bench.csv"))
    parser.add_argument("--long", type=int, default=8192, help="tokens of the long prompt")
    parser.add_argument("--short", type=int, default=64, help="tokens of the urgent one")
    parser.add_argument("--after-s", type=float, default=0.3, help="it comes so long after the long one")
    parser.add_argument("--repeats", type=int, default=10, help="of (a)")
    parser.add_argument("--passes", type=int, default=3, help="that time the operators")
    parser.add_argument("--rounds", type=int, default=10, help="long prompts of (b) for each granularity")
    parser.add_argument("--each", type=int, default=16, help="arrivals within each of them")
    parser.add_argument("--chunk-step-tokens", type=int, default=2048, help="a step's tokens with granularity chunk")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048, 8192], help="prompts of (c)")
    parser.add_argument("--pairs", type=int, nargs="+", default=[80, 30, 12], help="of each of them")
    parser.add_argument("--decode-pairs", type=int, default=100)
    parser.add_argument("--throughput-only", action="store_true", help="(c) without the rest")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))

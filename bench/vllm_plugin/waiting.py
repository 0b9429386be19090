"""What a short, urgent prompt waits for behind a long one: TTFT, blocking by granularity, and the longest operator."""

import asyncio
import itertools
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.vllm_plugin.asking import SHORT_SLO_S, Answer, ask, short_ones_behind
from bench.vllm_plugin.servers import Server
from engine.core.clock import NS_PER_S

OPERATORS = ("qkv_proj", "attn", "o_proj", "gate_up_proj", "down_proj")


async def behind(
    servers: Mapping[str, Server], long_tokens: int, short_tokens: int, after_s: float, repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[float]], dict[str, list[float]]]:
    """Seconds by server: TTFT of a short prompt so long after a long one, of the short one alone, of the long one.

    Servers take turns, another one begins each round.
    """
    names = list(servers)
    waited: dict[str, list[float]] = {name: [] for name in names}
    alone: dict[str, list[float]] = {name: [] for name in names}
    long_s: dict[str, list[float]] = {name: [] for name in names}
    for number in range(repeats):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            long, (short,) = await short_ones_behind(servers[name], long_tokens, short_tokens, [after_s])
            waited[name].append(short.seconds)
            long_s[name].append(long.seconds)
            alone[name].append((await ask(servers[name], short_tokens, slo_s=SHORT_SLO_S)).seconds)
    return waited, alone, long_s


async def blocking(
    servers: Mapping[str, Server],
    long_tokens: int,
    short_tokens: int,
    rounds: int,
    each: int,
    took_s: Mapping[str, float],
) -> dict[str, list[list[float]]]:
    """Seconds of blocking by server: a list for each round, of one value for each of its arrivals.

    Every round has `each` arrivals, one at a random instant of each equal part of the long prompt's time, so that every
    operator gets its share of them. The parts of the same round are the same for all servers, which take turns.

    took_s: seconds of a long prompt by server, as a first guess.
    """
    found: dict[str, list[list[float]]] = {name: [] for name in servers}
    drawn, expected_s, names = random.Random(0), dict(took_s), list(servers)
    for number in range(rounds):
        places = [(part + drawn.random()) / each for part in range(each)]
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            seen = len(servers[name].nestings())
            delays = [place * expected_s[name] for place in places]
            long, shorts = await short_ones_behind(servers[name], long_tokens, short_tokens, delays)
            expected_s[name] = long.seconds
            await ask(servers[name], short_tokens)  # what ends after its answer is in the log by now
            found[name].append(blocked_s(shorts, long, servers[name].nestings(after=seen)))
    return found


def blocked_s(shorts: Sequence[Answer], long: Answer, entries: Sequence[Mapping[str, Any]]) -> list[float]:
    """From each short prompt's arrival until the long one stood, in seconds.

    By the log, asked to started. Where several came within one operator, the log has the later ones ask when the one
    before had ended; each has waited for that operator since it was sent. What no preemption let in waited for the
    long prompt's end, or came after it.
    """
    waits: dict[str, tuple[int | None, int]] = {}
    stood = ended = -1
    for entry in entries:
        chained = entry["asked_at_ns"] == ended
        stood = stood if chained else entry["started_at_ns"]
        ended = entry["ended_at_ns"]
        waits[entry["request_id"]] = (None if chained else entry["asked_at_ns"], stood)
    found = []
    for short in shorts:
        own = (span for request_id, span in waits.items() if request_id.startswith(short.request_id))
        asked_at_ns, stood_at_ns = next(own, (None, long.answered_at_ns))
        since_ns = short.sent_at_ns if asked_at_ns is None else asked_at_ns
        found.append(max(0, stood_at_ns - since_ns) / NS_PER_S)
    return found


async def operator_seconds(server: Server, long_tokens: int, short_tokens: int) -> dict[str, float]:
    """Seconds of every operator of a long prompt, by its label, from the nesting log.

    A short prompt is sent whenever the one before is answered, so that one is nested at each boundary: from the end of
    a nesting to the start of the next is one operator. Those between which a boundary was missed are left out.
    """
    seen = len(server.nestings())
    long = asyncio.ensure_future(ask(server, long_tokens))
    await asyncio.sleep(0.02)
    while not long.done():
        await ask(server, short_tokens, slo_s=SHORT_SLO_S)
    await long
    return operators_of(server.nestings(after=seen))


def operators_of(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds between neighbouring boundaries, by the later one's label (L<layer>.<operator>)."""
    found = {}
    for before, entry in itertools.pairwise(entries):
        if place_of(entry["boundary"]) == place_of(before["boundary"]) + 1:
            found[entry["boundary"]] = (entry["started_at_ns"] - before["ended_at_ns"]) / NS_PER_S
    return found


def place_of(label: str) -> int:
    """The place of a boundary in the pass."""
    layer, _, operator = label.partition(".")
    return int(layer[1:]) * len(OPERATORS) + OPERATORS.index(operator)


def longest(passes: Sequence[Mapping[str, float]]) -> tuple[str, float]:
    """The operator that takes longest, by its median over the passes that timed it."""
    labels = {label for one in passes for label in one}
    medians = {label: statistics.median(one[label] for one in passes if label in one) for label in labels}
    label = max(medians, key=lambda name: medians[name])
    return label, medians[label]

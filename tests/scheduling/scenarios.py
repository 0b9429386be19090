"""Scenarios as data: what happens and in which order work must then execute, on any executor.

A scenario names no instants. Its steps wait for work to execute (`Until`) and then let something happen while it does:
a runner must keep what executes from ending before the next step has happened. SLOs are either hopeless (1 ns) or
so far that no executor misses them; the order among those is the order of `slo_s`. Run by test_scenarios.py here, in
virtual time, and by tests/torch_backend/test_scenarios.py on a model.
"""

from collections.abc import Callable
from dataclasses import dataclass

from baselines.policies.chunked_prefill import ChunkBatching
from baselines.policies.distserve import TokenLimitedBatching, distserve_order
from baselines.policies.request_restart import RequestRestart
from engine.core.ports import Batching, Policy
from engine.scheduling.batching import NoBatching, SLOAwareBatching
from engine.scheduling.policies.edf import EDF
from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.policies.srpt import SRPT

LONG = 1000
SHORT = 20
HOPELESS_S = 1e-9
BLOCK_TOKENS = 16


@dataclass(frozen=True)
class Prompt:
    """A request. tokens: of its prompt. slo_s: None states none."""

    name: str
    tokens: int
    slo_s: float | None = 1000.0
    max_tokens: int = 1


@dataclass(frozen=True)
class Arrive:
    """All of these at one instant, in this order."""

    prompts: tuple[Prompt, ...]


@dataclass(frozen=True)
class Until:
    """Go on until this request is a member of the executing task."""

    name: str


@dataclass(frozen=True)
class Cancel:
    """Its client leaves."""

    name: str


@dataclass(frozen=True)
class Scenario:
    """runs: what executes, in order: "A+B" a started task, "~A" a resumed one.

    kv_blocks: of 16 tokens each. rejected: ids that must be refused.
    """

    name: str
    policy: Callable[[], Policy]
    batching: Callable[[], Batching]
    steps: tuple[Arrive | Until | Cancel, ...]
    runs: tuple[str, ...]
    kv_blocks: int = 4096
    rejected: tuple[str, ...] = ()


def arrive(*prompts: Prompt) -> Arrive:
    """Shorter to read."""
    return Arrive(prompts)


def flowprefill_batching() -> Batching:
    """As published, with a bound of 500 tokens."""
    return SLOAwareBatching(0.1, 500)


A_LONG = arrive(Prompt("A", LONG, 900.0))

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "a more urgent prompt preempts a long one, which then goes on",
        SlackEDF,
        flowprefill_batching,
        (A_LONG, Until("A"), arrive(Prompt("B", SHORT, 100.0))),
        ("A", "B", "~A"),
    ),
    Scenario(
        "a less urgent prompt waits",
        SlackEDF,
        flowprefill_batching,
        (A_LONG, Until("A"), arrive(Prompt("B", SHORT, 1000.0))),
        ("A", "B"),
    ),
    Scenario(
        "e01 short prompts behind a long one preempt it together, as one batch",
        SlackEDF,
        flowprefill_batching,
        (A_LONG, Until("A"), arrive(*(Prompt(f"B{n}", SHORT, 100.0 + n) for n in range(1, 6)))),
        ("A", "B1+B2+B3+B4+B5", "~A"),
    ),
    Scenario(
        "preemption nests: the innermost goes on first",
        SlackEDF,
        NoBatching,
        (
            A_LONG,
            Until("A"),
            arrive(Prompt("B", LONG, 500.0)),
            Until("B"),
            arrive(Prompt("C", SHORT, 100.0)),
        ),
        ("A", "B", "C", "~B", "~A"),
    ),
    Scenario(
        "what can no longer be met does not preempt, and runs after what can, latest deadline first",
        SlackEDF,
        NoBatching,
        (
            A_LONG,
            Until("A"),
            arrive(Prompt("B", SHORT, HOPELESS_S), Prompt("C", SHORT, 2 * HOPELESS_S), Prompt("D", SHORT, 950.0)),
        ),
        ("A", "D", "C", "B"),
    ),
    Scenario(
        "edf lets a hopeless prompt preempt",
        EDF,
        NoBatching,
        (A_LONG, Until("A"), arrive(Prompt("B", SHORT, HOPELESS_S))),
        ("A", "B", "~A"),
    ),
    Scenario(
        "srpt runs the shortest first whatever its deadline",
        SRPT,
        NoBatching,
        (A_LONG, Until("A"), arrive(Prompt("B", 400, 100.0), Prompt("C", SHORT, 5000.0))),
        ("A", "C", "B", "~A"),
    ),
    Scenario(
        "fcfs keeps the order of arrival",
        FCFS,
        NoBatching,
        (A_LONG, Until("A"), arrive(Prompt("B", 400, 100.0), Prompt("C", SHORT, 50.0))),
        ("A", "B", "C"),
    ),
    Scenario(
        "a prompt without SLO waits behind those with one",
        SlackEDF,
        NoBatching,
        (A_LONG, Until("A"), arrive(Prompt("B", SHORT, None), Prompt("C", SHORT, 950.0))),
        ("A", "C", "B"),
    ),
    Scenario(
        "a prompt without SLO is preempted by one with an SLO",
        SlackEDF,
        NoBatching,
        (arrive(Prompt("A", LONG, None)), Until("A"), arrive(Prompt("B", SHORT, 1000.0))),
        ("A", "B", "~A"),
    ),
    Scenario(
        "e05 a prompt that does not fit beside the executing one neither preempts it nor holds others up",
        SlackEDF,
        NoBatching,
        (
            arrive(Prompt("A", 600, 900.0)),
            Until("A"),
            arrive(Prompt("B", LONG, 50.0), Prompt("C", SHORT, 100.0)),
        ),
        ("A", "C", "~A", "B"),
        kv_blocks=100,
    ),
    Scenario(
        "e05 a prompt that can never fit is refused, the others run",
        SlackEDF,
        NoBatching,
        (arrive(Prompt("A", 2000, 50.0), Prompt("B", SHORT, 100.0)),),
        ("B",),
        kv_blocks=100,
        rejected=("A",),
    ),
    Scenario(
        "e08 the client of the executing prefill leaves: the next one runs",
        SlackEDF,
        NoBatching,
        (A_LONG, Until("A"), arrive(Prompt("B", SHORT, 1000.0)), Cancel("A")),
        ("A", "B"),
    ),
    Scenario(
        "the client of a preempted prefill leaves: it is not resumed",
        SlackEDF,
        NoBatching,
        (A_LONG, Until("A"), arrive(Prompt("B", LONG, 100.0)), Until("B"), Cancel("A"), arrive(Prompt("C", SHORT))),
        ("A", "B", "C"),
    ),
    Scenario(
        "the client of a waiting request leaves: it never runs",
        SlackEDF,
        NoBatching,
        (A_LONG, Until("A"), arrive(Prompt("B", SHORT), Prompt("C", SHORT)), Cancel("B")),
        ("A", "C"),
    ),
    Scenario(
        "distserve batches in order of arrival up to its bound and is never preempted",
        distserve_order,
        lambda: TokenLimitedBatching(100),
        (
            A_LONG,
            Until("A"),
            arrive(Prompt("B", 60, 1.0), Prompt("C", 40), Prompt("D", 61), Prompt("E", 39), Prompt("F", 2)),
        ),
        ("A", "B+C", "D+E", "F"),
    ),
    Scenario(
        "e02 chunked prefill in s_edf order lets an urgent prompt in between two chunks",
        lambda: NonPreemptive(SlackEDF()),
        lambda: ChunkBatching(500),
        (A_LONG, Until("A"), arrive(Prompt("B", SHORT, 100.0))),
        ("A", "B+A", "A"),
    ),
    Scenario(
        "e02 an urgent prompt preempts a running chunk, which then goes on",
        SlackEDF,
        lambda: ChunkBatching(500),
        (A_LONG, Until("A"), arrive(Prompt("B", SHORT, 100.0))),
        ("A", "B", "~A", "A"),
    ),
    Scenario(
        "chunked prefill in order of arrival packs the last chunk with the next prompt",
        lambda: NonPreemptive(FCFS()),
        lambda: ChunkBatching(400),
        (A_LONG, Until("A"), arrive(Prompt("B", 150, 100.0), Prompt("C", 100, 50.0))),
        ("A", "A", "A+B+C", "C"),
    ),
    Scenario(
        "a restarted prefill begins anew",
        lambda: RequestRestart(SlackEDF()),
        NoBatching,
        (A_LONG, Until("A"), arrive(Prompt("B", SHORT, 100.0))),
        ("A", "B", "A"),
    ),
    Scenario(
        "decode steps run when no prefill can, and are not preempted",
        SlackEDF,
        NoBatching,
        (arrive(Prompt("A", SHORT, 900.0, max_tokens=3), Prompt("B", SHORT, 950.0, max_tokens=2)),),
        ("A", "B", "A+B", "A"),
    ),
)

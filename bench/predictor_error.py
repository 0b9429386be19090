"""How far predictors are from measured prefills, over the pieces of work of the embedded trace.

python -m bench.predictor_error. Each piece is measured here, on an idle machine: the predictors' profile was. With
--against FILE nothing is measured: the truth is what another profile of the same model measured, whole prompts between
its lengths and continuations at its lengths. Adds to --out a row for each kind of work and predictor: the median of
predicted over measured less 1, and the 50th and 95th percentile of its absolute value.
"""

import argparse
import shlex
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from bench.trace_work import CHUNK, KINDS, WHOLE, Piece, pieces_of
from engine.core.batch import Sequence as Share
from engine.core.batch import Task, TaskKind, Work
from engine.core.clock import NS_PER_S
from engine.core.command_line import OneSentenceParser, run_command
from engine.core.ports import Predictor
from engine.model.catalogue import load_shape
from engine.model.granularity import Granularity
from engine.model.operators import plan_prefill
from engine.model.segments import Segment, segments_of
from engine.scheduling.predictors.polynomial import PrefillSample
from engine.scheduling.predictors.sampled_curve import RangeError, SampledCurve
from engine.serving.catalogue import PREDICTORS
from engine.serving.timings import read_timings
from engine.torch_backend.gate import Gate
from engine.torch_backend.kv_cache import KVCache
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.program import plan_program
from engine.torch_backend.sampling import SamplingSettings
from engine.torch_backend.task_state import build_state
from harness.experiments.provenance import provenance
from harness.experiments.run_list import add_table_run
from harness.measurement.table_file import Row, merge_rows
from workloads.length_scale import effective_tokens
from workloads.settings import WorkloadSettings
from workloads.traces.catalogue import load_trace

PROFILE = Path("profiles/amd_epyc_1_threads_float32/cpu_demo.json")
COLUMNS = ("point", "model", "profile", "truth", "work", "predictor", "pieces", "not_predicted")
Measured = Sequence[tuple[Piece, float, float]]
"""Pieces with the seconds they took, and those that what was preempted had taken before."""


def main() -> int:
    parser = OneSentenceParser(
        prog="python -m bench.predictor_error",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="cpu_demo")
    parser.add_argument("--profile", type=Path, default=PROFILE, help="what the predictors are fitted to")
    parser.add_argument("--against", type=Path, help="take the truth from this profile, measure nothing")
    parser.add_argument("--out", type=Path, default=Path("results/tables/predictor_error.csv"))
    parser.add_argument("--length-scale", type=float, default=0.25, help="tokens per trace token")
    parser.add_argument("--every", type=int, default=4, help="measure the pieces of every n-th request")
    parser.add_argument("--token-bound", type=int, default=512, help="most tokens of a batch")
    parser.add_argument("--chunk-tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3, help="times each piece is measured; the median counts")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    shape = load_shape(given.model)
    timings = read_timings(given.profile, shape.layers)
    predictors = {name: make(timings) for name, make in PREDICTORS.items()}
    trace, _ = load_trace(WorkloadSettings(name="sample", format="sample"))
    prompts = [effective_tokens(row.input_tokens, given.length_scale) for row in trace.rows]
    prompts = [prompt for prompt in prompts if prompt <= shape.max_positions]
    if given.against:
        measured = _from_profile(prompts, read_timings(given.against, shape.layers).prefills)
    else:
        plan = plan_prefill(shape, [Segment("", 0, 1, 0, True)], Granularity.OPERATOR)
        operators = sum(1 for _ in plan.operators())
        pieces = pieces_of(prompts[:: given.every], given.token_bound, given.chunk_tokens, operators)
        measured = _measure(list(pieces), given)
    truth = given.against.name if given.against else f"measured, every {given.every}"
    rows = [
        {"point": f"{given.model}-{given.profile.name}-{truth}-{row['work']}-{row['predictor']}", "model": given.model}
        | {"profile": given.profile.name, "truth": truth}
        | row
        for row in error_rows(measured, predictors)
    ]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    origin = provenance({}, again=shlex.join(["python", "-m", "bench.predictor_error", *sys.argv[1:]]))
    add_table_run(given.out, [row["point"] for row in rows], origin)
    merge_rows(given.out, rows, COLUMNS)
    for row in rows:
        print(", ".join(f"{key} {value}" for key, value in row.items() if key != "point"))
    return 0


def error_rows(measured: Measured, predictors: Mapping[str, Predictor]) -> list[Row]:
    """A row per kind of work and predictor; kinds that do not occur have none."""
    rows: list[Row] = []
    for kind in KINDS:
        of_kind = [entry for entry in measured if entry[0].kind == kind]
        for name, predictor in predictors.items() if of_kind else ():
            errors: list[float] = []
            for piece, seconds, before_s in of_kind:
                try:
                    errors.append(_predicted_s(name, predictor, piece.work, before_s) / seconds - 1)
                except RangeError:
                    continue
            absolute = np.abs(errors)
            rows.append(
                {
                    "work": kind,
                    "predictor": name,
                    "pieces": len(of_kind),
                    "not_predicted": len(of_kind) - len(errors),
                    "median_error": round(float(np.median(errors)), 4) if errors else None,
                    "absolute_error_p50": round(float(np.percentile(absolute, 50)), 4) if errors else None,
                    "absolute_error_p95": round(float(np.percentile(absolute, 95)), 4) if errors else None,
                }
            )
    return rows


def _predicted_s(name: str, predictor: Predictor, work: Work, before_s: float) -> float:
    """Of a rest: operator_sum prices it from its cursor, others by what it has executed, as the scheduler does."""
    if name == "operator_sum":
        return predictor.estimate_ns(work) / NS_PER_S
    return max(0.0, predictor.estimate_ns(work) / NS_PER_S - before_s)


def _from_profile(prompts: Sequence[int], samples: Sequence[PrefillSample]) -> Measured:
    alone = {float(s.new_tokens): s.seconds for s in samples if s.context_tokens == 0}
    curve = SampledCurve("prefill", sorted(alone.items()))
    within = [prompt for prompt in prompts if min(alone) <= prompt <= max(alone)]
    whole = [(Piece(WHOLE, Work(((prompt, 0),))), curve.at(prompt), 0.0) for prompt in within]
    after = [s for s in samples if s.context_tokens]
    return whole + [(Piece(CHUNK, Work(((s.new_tokens, s.context_tokens),))), s.seconds, 0.0) for s in after]


def _measure(pieces: Sequence[Piece], given: argparse.Namespace) -> Measured:
    """Rounds go through all pieces, so that a slow spell of the machine hits one round and not one piece."""
    torch.set_num_threads(given.threads)
    model = load_model(given.model, dummy=True)
    taken: dict[int, list[tuple[float, float]]] = defaultdict(list)
    with torch.inference_mode():
        for _ in range(given.rounds):
            for number, piece in enumerate(pieces):
                taken[number].append(_one_run_s(model, piece.work))
    return [
        (piece, statistics.median(run[1] for run in runs), statistics.median(run[0] for run in runs))
        for piece, runs in zip(pieces, taken.values(), strict=True)
    ]


def _one_run_s(model: Decoder, work: Work) -> tuple[float, float]:
    """Seconds until the cursor and from there on; planning counts as begun, reading the token back as ended."""
    cache = KVCache(model.shape, sum(-(-sum(each) // 16) for each in work.lengths), 16, model.device, model.dtype)
    for tensor in (*cache.keys, *cache.values):
        tensor.zero_()
    shares = tuple(Share(str(number), context, new) for number, (new, context) in enumerate(work.lengths))
    for share in shares:
        cache.allocate(share.request_id, share.context_tokens + share.new_tokens)
    task = Task(0, TaskKind.PREFILL, shares)
    tokens = [token % model.shape.vocab_size for token in range(task.new_tokens)]
    gate = Gate()
    gate.stop_at(work.operators_done, 0)
    began_s = time.perf_counter()
    state = build_state(model.shape, cache, model.rope, segments_of(task), tokens)
    program = plan_program(model, state, [(SamplingSettings(), None)] * len(shares), Granularity.OPERATOR)
    if work.operators_done:
        program.run(gate)
    stopped_s = time.perf_counter()
    program.run(Gate())
    assert state.sampled is not None
    state.sampled.tolist()
    ended_s = time.perf_counter()
    if not work.operators_done:
        return 0.0, ended_s - began_s
    return stopped_s - began_s, ended_s - stopped_s


if __name__ == "__main__":
    sys.exit(run_command(main))

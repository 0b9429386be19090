"""Results folders written by the project's own writers, from made-up latencies: no engine, no clock."""

import math
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.core.record import ClientReport, EngineReport, RequestRecord, Status
from harness.experiments.fairness_table import fairness_rows, write_fairness
from harness.measurement.blocking import GRANULARITY_COLUMNS
from harness.measurement.goodput_table import max_goodput_table, write_max_goodput
from harness.measurement.ratio_table import ratio_table, write_ratios
from harness.measurement.store import Point, write_point
from harness.measurement.table_file import read_table, write_table
from harness.measurement.tables import PointFacts, point_row, write_points
from harness.measurement.verdict import Judgement, Verdict

CLASSES = {"text": (0.69, 0.25), "image": (0.07, 0.5), "search": (0.2, 4.0), "file": (0.04, 6.0)}
STRETCH = 3.2
BLOCKING_MS = {"none": 60.0, "layer": 7.6, "half_layer": 4.0, "operator": 2.0, "tile": 1.0}
"""Mean blocking of a granularity under load."""

S = 1_000_000_000
DISTSERVE = "DistServe (FCFS)"

FACTS = PointFacts(
    experiment="goodput_vs_rate", point="", series="FlowPrefill (operator)", system="flowprefill", policy="s_edf",
    granularity="operator", chunk_tokens=None, batching="slo_aware", backend="engine", source="measured",
    model="cpu_demo", device="cpu (2 cores)", workload="sample", protocol="paper", length_scale=0.25, slo_scale=1.0,
    slo_speed_factor=STRETCH, rate_scale=1.0, rate_rps=2.75 / STRETCH, seed=0,
)  # fmt: skip

SYSTEMS = {  # facts of a system, and the rate scale it carries
    "flowprefill": (FACTS, 4.0),
    "flowprefill_tile": (
        replace(FACTS, series="FlowPrefill (tile)", system="flowprefill_tile", granularity="tile"), 4.4,
    ),
    "distserve": (
        replace(
            FACTS, series="DistServe (FCFS)", system="distserve", policy="fcfs", granularity="none",
            batching="token_limited",
        ),
        1.4,
    ),
}  # fmt: skip


def chunked(tokens: int, policy: str, capacity: float) -> tuple[PointFacts, float]:
    return (
        replace(
            FACTS, series=f"Chunked prefill {tokens} ({policy})", system="chunked_prefill", policy=policy,
            granularity="none", batching="chunked", chunk_tokens=tokens,
        ),
        capacity,
    )  # fmt: skip


def records(facts: PointFacts, capacity: float, requests: int) -> tuple[RequestRecord, ...]:
    """TTFTs that grow as the rate nears what the system carries; the same arguments give the same records."""
    chance = random.Random(f"{facts.series} {facts.workload} {facts.rate_scale} {facts.slo_scale} {facts.seed}")
    load = facts.rate_scale / capacity * (1 + 0.08 * (facts.seed % 5 - 2) / 2)
    made = []
    for i in range(requests):
        name = chance.choices(list(CLASSES), [share for share, _ in CLASSES.values()])[0]
        slo = CLASSES[name][1] * STRETCH * facts.slo_scale
        typical = CLASSES[name][1] * STRETCH * 0.5 * math.exp(1.1 * (load - 1))
        ttft = typical * math.exp(0.55 * chance.gauss(0, 1))
        lost = chance.random() < 0.02 * load
        due = i * S // 3
        made.append(
            RequestRecord(
                f"r{i}", name, 400, 1, round(slo * S), None, due, due, None if lost else due + round(ttft * S), None,
                0 if lost else 1, status=Status.TIMED_OUT if lost else Status.OK,
            )
        )  # fmt: skip
    return tuple(made)


def write_points_of(
    root: Path,
    points: Iterable[tuple[PointFacts, float]],
    requests: int,
    invalid: Sequence[str] = (),
    raw: bool = True,
    reference: str = DISTSERVE,
) -> None:
    """Raw points, the point table and the max goodput table of one experiment."""
    rows, shares = [], []
    for facts, capacity in points:
        slug = f"{facts.series}-{facts.batching}-{facts.rate_scale:g}-{facts.slo_scale:g}-{facts.seed}"
        facts = replace(facts, point="".join(c if c.isalnum() or c in "-." else "_" for c in slug))
        made = records(facts, capacity, requests)
        done = sum(record.status is Status.OK for record in made)
        client = ClientReport(len(made), len(made), 120 * S, facts.rate_rps, facts.rate_rps)
        chunks = 1 if facts.chunk_tokens is None else 1 + 1600 // facts.chunk_tokens
        engine = EngineReport(
            decisions=len(made) + done * chunks - 3, preemptions=9, prefill_tokens=400 * len(made),
            executed_ns=round(60 * S * (1 + 30 / (facts.chunk_tokens or 30_000))),
            blocking_ns=tuple(round(BLOCKING_MS.get(facts.granularity, 2.0) * x * 1e6) for x in (0.2, 0.4, 2.4)),
            scheduling_ns=2_000_000,
        )  # fmt: skip
        verdict = Verdict.CLIENT_BOUND if facts.point in invalid else Verdict.VALID
        row = point_row(facts, made, engine, client, Judgement(verdict, ()))
        if facts.source == "simulated":
            limit = min(1.0, 1.15 - 0.025 * facts.rate_scale + 0.002 * facts.seed)
            row.update(bound_attainment=limit, fraction_of_bound=float(row["attainment"]) / limit)  # type: ignore[arg-type]
        rows.append(row)
        if facts.source == "measured":
            shares += fairness_rows(Point(facts, {}, {}, made, engine, client), lambda tokens: tokens / 4000)
        if raw:
            write_point(root / "raw" / facts.experiment / facts.point, Point(facts, {}, {}, made, engine, client))
    experiment = str(rows[0]["experiment"])
    if shares:
        write_fairness(root / "tables", experiment, shares)
    table = root / "tables" / f"{experiment}.csv"
    write_points(table, rows)
    if len({row["slo_scale"] for row in rows}) == 1 and len({row["batching"] for row in rows}) <= 3:
        best = max_goodput_table(read_table(table), reference=reference)
        write_max_goodput(root / "tables" / f"{experiment}_max_goodput.csv", best)
        write_ratios(root / "tables" / f"{experiment}_ratios.csv", ratio_table(read_table(table)))


def at(facts: PointFacts, **changes: object) -> PointFacts:
    """The facts of a point; its requests per second follow its rate scale."""
    changed = replace(facts, **changes)  # type: ignore[arg-type]
    return replace(changed, rate_rps=2.75 / STRETCH * changed.rate_scale)


def write_comparison(
    root: Path, experiment: str = "goodput_vs_rate", workload: str = "sample", seeds: int = 3, requests: int = 60,
    rates: Sequence[float] = (0.5, 1, 2, 3, 4, 6), every_rival: bool = False, source: str = "measured",
) -> None:  # fmt: skip
    systems = list(SYSTEMS.values())
    systems += [chunked(256, "s_edf", 3.8), chunked(256, "edf", 3.4)]
    if every_rival:
        systems += [chunked(512, "s_edf", 3.5), chunked(2048, "s_edf", 2.4), chunked(512, "edf", 3.1)]
        systems += [chunked(2048, "edf", 2.2), chunked(2048, "fcfs", 1.3)]
    points = [
        (
            at(facts, experiment=experiment, workload=workload, source=source, rate_scale=float(rate), seed=seed),
            capacity,
        )
        for facts, capacity in systems
        for rate in rates
        for seed in range(seeds)
        if not (facts.system == "distserve" and rate > 3) and not (facts.system != "distserve" and rate < 1)
    ]
    write_points_of(root, points, requests)


A800 = replace(
    FACTS, experiment="sim_goodput_vs_rate", backend="simulator", source="simulated", model="llama3_8b",
    device="a800_clean", length_scale=1.0, slo_speed_factor=1.0,
)  # fmt: skip
"""Facts of a simulated point."""


def simulated_systems() -> list[tuple[PointFacts, float]]:
    """All that the simulated comparison has, and the rate scale each carries."""
    world = {name: getattr(A800, name) for name in WORLD}
    orders = {"s_edf": 4.0, "edf": 3.6, "fcfs": 3.2}
    found = [
        *SYSTEMS.values(),
        *(chunked(size, policy, carries - size / 4000) for size in CHUNKS for policy, carries in orders.items()),
        (flowprefill_at("layer"), 3.2),
        (flowprefill_at("half_layer"), 3.6),
        (replace(chunked(8192, "fcfs", 1.0)[0], series="vLLM-like", system="vllm_like"), 1.8),
        (replace(chunked(8192, "fcfs", 1.0)[0], series="SGLang-like", system="sglang_like"), 1.9),
    ]
    return [(replace(facts, **world), capacity) for facts, capacity in found]


CHUNKS = (512, 1024, 2048, 8192)


def flowprefill_at(granularity: str) -> PointFacts:
    return replace(
        FACTS, series=f"FlowPrefill ({granularity})", system=f"flowprefill_{granularity}", granularity=granularity
    )


def write_simulated_comparison(
    root: Path, experiment: str = "sim_goodput_vs_rate", rates: Sequence[float] = (0.5, 1, 2, 3, 4, 6, 8),
    seeds: int = 3, requests: int = 60, systems: Sequence[tuple[PointFacts, float]] | None = None,
    reference: str = DISTSERVE, **changes: object,
) -> None:  # fmt: skip
    points = [
        (at(facts, experiment=experiment, rate_scale=float(rate), seed=seed, **changes), capacity)
        for facts, capacity in (simulated_systems() if systems is None else systems)
        for rate in rates
        for seed in range(seeds)
    ]
    write_points_of(root, points, requests, raw=False, reference=reference)


def few_systems() -> list[tuple[PointFacts, float]]:
    """FlowPrefill, DistServe and a chunked rival."""
    wanted = ("FlowPrefill (operator)", DISTSERVE, "Chunked prefill 512 (s_edf)")
    return [(facts, carries) for facts, carries in simulated_systems() if facts.series in wanted]


def flowprefill_called(**carries: float) -> list[tuple[PointFacts, float]]:
    """FlowPrefill under other names: underscores are spaces, double ones a comma, "p" within digits a point."""
    return [
        (replace(A800, series=re.sub(r"(\d)p(\d)", r"\1.\2", name.replace("__", ", ").replace("_", " "))), carried)
        for name, carried in carries.items()
    ]


def write_simulated(root: Path, seeds: int = 2, requests: int = 20) -> None:
    """Every simulated experiment, small."""
    size: dict[str, int] = {"seeds": seeds, "requests": requests}
    few = few_systems()
    write_simulated_comparison(root, rates=(0.5, 1, 2, 4), **size)
    slower = [(facts, 0.8 * carries) for facts, carries in few]
    write_simulated_comparison(root, "sim_steady_state", systems=slower, protocol="steady_state", **size)
    write_simulated_comparison(root, "sim_steady_state_doubled", systems=slower, protocol="steady_state", **size)
    for experiment, changes in (
        ("sim_release", {"device": "a800_release"}), ("sim_single_slo", {}), ("sim_overload", {}),
        ("sim_models", {"model": "llama3_70b"}), ("sim_arrivals", {"workload": "sample, gamma 1.4"}),
    ):  # fmt: skip
        write_simulated_comparison(root, experiment, systems=few, **size, **changes)  # type: ignore[arg-type]
    world = {name: getattr(A800, name) for name in WORLD}
    chunks = [(replace(chunked(n, "s_edf", 1.0)[0], **world), 4 - n / 5000) for n in (256, 1024, 4096, 16384)]
    write_simulated_comparison(root, "sim_chunk_tradeoff", systems=[*few[:2], *chunks], **size)
    ablation = flowprefill_called(alpha_0p05=3.8, alpha_0p5=2.8, token_bound_512=3.4, token_bound_8192=4.1)
    others = flowprefill_called(no_batching=3.0)
    write_simulated_comparison(
        root, "sim_ablation", systems=[few[0], *ablation, *others], reference=few[0][0].series, **size
    )
    errors = flowprefill_called(FlowPrefill__error_0p0=4.0, FlowPrefill__error_0p2=3.8, FlowPrefill__error_0p5=3.2)
    write_simulated_comparison(root, "sim_predictor_error", systems=errors, reference="FlowPrefill, error 0.0", **size)
    rounds = flowprefill_called(
        on_events=4.0, polling_every_1_ms=3.9, polling_every_10_ms=3.2, before_every_operator=3.5
    )
    write_simulated_comparison(root, "sim_rounds", systems=rounds, reference="on events", **size)
    levels = [(replace(fact, **world), carries) for fact, carries in ((flowprefill_at("none"), 1.0),
              (flowprefill_at("layer"), 3.2), (flowprefill_at("half_layer"), 3.6), (few[0][0], 4.0))]  # fmt: skip
    write_simulated_comparison(root, "sim_blocking", systems=levels, **size)
    write_tensor_parallel(root, **size)
    write_colocated(root, **size)
    write_disaggregated(root, **size)
    write_predictor_fit(root)
    write_slo_scale(root, requests, "sim_slo_scale", source="simulated")
    write_ablation(root, requests, seeds, "sim_gain_split", rates=(0.5, 1, 2, 3, 4), source="simulated")


def write_tensor_parallel(root: Path, seeds: int = 2, requests: int = 20) -> None:
    """FlowPrefill and DistServe over one, two and four accelerators."""
    systems = [
        (replace(facts, series=f"{facts.series}, TP{ranks}"), carries * ranks)
        for facts, carries in few_systems()[:2]
        for ranks in (1, 2, 4)
    ]
    write_simulated_comparison(
        root, "sim_tp", systems=systems, reference=f"{DISTSERVE}, TP1", seeds=seeds, requests=requests
    )


def write_colocated(root: Path, seeds: int = 2, requests: int = 20) -> None:
    """A simulated comparison in which half of the requests that met their TTFT SLO met their TBT SLO, too."""
    write_simulated_comparison(root, "sim_colocated", systems=few_systems(), seeds=seeds, requests=requests)
    path = root / "tables" / "sim_colocated.csv"
    write_points(path, [{**row, "attainment_joint": float(row["attainment"]) / 2} for row in read_table(path)])


def write_disaggregated(
    root: Path, experiment: str = "sim_pd", seeds: int = 2, requests: int = 20, source: str = "simulated"
) -> None:
    """FlowPrefill on one accelerator, and on two that carry three times the load; TBT is met as often as TTFT."""
    facts, carries = few_systems()[0]
    apart = replace(facts, series="FlowPrefill (1P1D)", system="flowprefill_1p1d")
    systems = [(facts, carries), (apart, 3 * carries)]
    write_simulated_comparison(
        root, experiment, systems=systems, reference=facts.series, seeds=seeds, requests=requests, source=source
    )
    path = root / "tables" / f"{experiment}.csv"
    both = [
        {**row, "attainment_joint": float(row["attainment"]) / 2, "tbt_attainment": row["attainment"]}
        for row in read_table(path)
    ]
    write_points(path, both)


def write_predictor_fit(root: Path) -> None:
    """Two predictors of one model: the first 10 % high, the second right, and without a prediction at 8 tokens."""
    rows = [
        {
            "model": "m", "device": "d", "source": "simulated", "predictor": name, "new_tokens": tokens,
            "context_tokens": context, "fitted": tokens != 64, "true_s": tokens / 1000,
            "predicted_s": None if share is None else tokens / 1000 * (1 + share), "relative_error": share,
        }
        for name, error in (("polynomial", 0.1), ("operator_sum", 0.0))
        for tokens, context in ((8, 0), (64, 0), (512, 0), (512, 1024))
        for share in [None if (name, tokens) == ("operator_sum", 8) else error]
    ]  # fmt: skip
    write_table(root / "tables" / "predictor_fit.csv", rows)


WORLD = ("backend", "source", "model", "device", "length_scale", "slo_speed_factor")


def write_slo_scale(root: Path, requests: int = 60, experiment: str = "slo_scale", source: str = "measured") -> None:
    points = [
        (at(facts, experiment=experiment, source=source, rate_scale=2.0, slo_scale=scale, seed=seed), capacity)
        for facts, capacity in [*SYSTEMS.values(), chunked(256, "s_edf", 3.8), chunked(256, "edf", 3.4)]
        for scale in (0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
        for seed in range(3)
    ]
    write_points_of(root, points, requests, raw=False)


def write_ablation(
    root: Path, requests: int = 60, seeds: int = 3, experiment: str = "ablation", rates: Sequence[float] = (1.5, 3.0),
    source: str = "measured",
) -> None:  # fmt: skip
    order = {"fcfs": 1.0, "edf": 1.9, "s_edf": 2.1}
    check = {"none": 1.0, "layer": 1.35, "operator": 1.6, "tile": 1.75}
    points = [
        (
            at(
                FACTS, experiment=experiment, source=source, policy=policy, granularity=granularity, batching=batching,
                series=f"{policy}, {granularity}, {batching}", rate_scale=rate, seed=seed,
            ),
            order[policy] * (check[granularity] if policy != "fcfs" else 1.0) * (1.15 if batching != "none" else 1.0),
        )
        for policy in order
        for granularity in check
        for batching in ("none", "slo_aware")
        for rate in rates
        for seed in range(seeds)
    ]  # fmt: skip
    write_points_of(root, points, requests, raw=False)


GRANULARITY = {  # setting: mean, p50, p99, max, predicted mean (ms), tokens/s
    ("none", None): (180.0, 160.0, 420.0, 610.0, 176.0, 1000.0),
    ("layer", None): (31.0, 28.0, 75.0, 104.0, 29.5, 999.0),
    ("half_layer", None): (18.2, 16.0, 52.0, 71.0, 17.1, 998.0),
    ("operator", None): (8.6, 7.1, 33.0, 48.0, 8.1, 996.0),
    ("tile", None): (2.4, 2.1, 6.0, 9.0, 2.3, 971.0),
    ("none", 256): (7.9, 7.2, 14.0, 18.0, 7.6, 930.0),
    ("none", 512): (14.0, 12.0, 29.0, 35.0, 13.5, 955.0),
    ("none", 1024): (33.0, 31.0, 60.0, 77.0, 32.0, 978.0),
    ("none", 2048): (71.0, 66.0, 140.0, 171.0, 69.0, 992.0),
}


def write_granularity(
    root: Path,
    settings: dict[tuple[str, int | None], tuple[float, ...]] = GRANULARITY,
    predicted: str = "blocking_predicted_mean_ms",
) -> None:
    rows = [
        {
            "experiment": "granularity", "point": f"{granularity}-{chunk}", "series": f"{granularity} {chunk}",
            "granularity": granularity, "chunk_tokens": chunk, "backend": "engine", "source": "measured",
            "model": "cpu_demo", "device": "cpu (2 cores)", "length_scale": 0.25, "slo_speed_factor": STRETCH,
            "prompt_tokens": None, "seed": 0, "blocking_n": 300, "blocking_mean_ms": mean, "blocking_p50_ms": p50,
            "blocking_p99_ms": p99, "blocking_max_ms": top, predicted: expected, "prefill_tokens_per_s": rate,
        }
        for (granularity, chunk), (mean, p50, p99, top, expected, rate) in settings.items()
    ]  # fmt: skip
    leading = [name for name in GRANULARITY_COLUMNS if name in rows[0]]
    write_table(root / "tables" / "granularity.csv", rows, leading)


def write_workload(root: Path) -> None:
    chance = random.Random(0)
    rows = [
        {
            "workload": "sample", "request": i, "arrival_s": i * 0.4, "task": name, "output_tokens": 1,
            "input_tokens": chance.randint(20, 9000), "ttft_slo_s": CLASSES[name][1], "tbt_slo_s": 0.1,
        }
        for i, name in enumerate(chance.choices(list(CLASSES), k=40))
    ]  # fmt: skip
    write_table(root / "tables" / "workload_sample.csv", rows)

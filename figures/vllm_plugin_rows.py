"""The rows behind the figure of the vLLM plugin: attainment, what order and granularity give, blocking, throughput."""

import pandas as pd

from figures.attainment_rows import ALL, NEEDED, attainment_rows
from figures.results import DamagedTableError, Inputs, MissingInputError, Results
from figures.seed_means import value_over_seeds

ATTAINMENT, STEP, BLOCKING, KEPT = "attainment", "step", "blocking", "kept"
SHARE = "rate_of_capacity"
STEPS = (
    ("S-EDF between steps", "vLLM + S-EDF (chunk)", "vLLM (FCFS)"),
    ("S-EDF against priority by class", "vLLM + S-EDF (chunk)", "vLLM (priority)"),
    ("+ stops at layers", "vLLM + FlowPrefill (layer)", "vLLM + S-EDF (chunk)"),
    ("+ stops at operators", "vLLM + FlowPrefill (operator)", "vLLM + FlowPrefill (layer)"),
)
"""What is added, the system with it, the system without. The first two are order, the last two granularity."""
GRANULARITIES = ("chunk", "layer", "half_layer", "operator")
BENCH = "vllm_plugin_bench"
BENCH_NEEDED = ("measure", "server", "tokens", "n", "value", "low", "high")


def rows(inputs: Inputs) -> pd.DataFrame:
    """Kind "attainment": by series, share of capacity and panel (all or a class). "step": difference of attainment that
    an addition makes, paired by seed. "blocking": seconds by granularity. "kept": throughput with hooks over without.

    The last two are of `bench.vllm_plugin` and may be missing. Raises MissingInputError.
    """
    table = inputs.results.table(inputs.experiment, (*NEEDED, "panel", "pilot", SHARE, "chunk_tokens"))
    points = table[(table["panel"] == "normalised") & ~table["pilot"].astype(bool)]
    if points.empty:
        raise MissingInputError(f"the table of {inputs.experiment} has pilot points only")
    attainment = attainment_rows(points, SHARE, inputs.experiment).assign(kind=ATTAINMENT)
    bench = _bench(inputs.results)
    parts = [attainment, _steps(points), _blocking(bench), _kept(bench)]
    found = pd.concat([part for part in parts if len(part)], ignore_index=True)
    return found[["kind", *(column for column in found.columns if column != "kind")]]


def _steps(points: pd.DataFrame) -> pd.DataFrame:
    shares = points.pivot_table(index=[SHARE, "seed"], columns="series", values="attainment")
    found = []
    for name, after, before in STEPS:
        if after not in shares or before not in shares:
            continue
        gains = (shares[after] - shares[before]).dropna()
        for share, values in gains.groupby(level=SHARE):
            gain = value_over_seeds(values.tolist())
            facts = {"kind": STEP, "series": name, "panel": ALL, SHARE: share, "seeds": len(values)}
            found.append({**facts, "gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high})
    return pd.DataFrame(found)


def _bench(results: Results) -> pd.DataFrame:
    try:
        return results.table(BENCH, BENCH_NEEDED)
    except DamagedTableError:
        raise
    except MissingInputError:
        return pd.DataFrame(columns=list(BENCH_NEEDED))


def _blocking(bench: pd.DataFrame) -> pd.DataFrame:
    here = bench[bench["measure"] == "blocking"]
    placed = here.assign(place=here["server"].map({name: i for i, name in enumerate(GRANULARITIES)}))
    return _named(placed.sort_values("place"), BLOCKING)


def _kept(bench: pd.DataFrame) -> pd.DataFrame:
    here = bench[bench["measure"].str.endswith(" kept") & (bench["server"] == "operator / none")]
    what = here["measure"].str.removesuffix(" throughput kept")
    return _named(here.assign(server=what + " " + here["tokens"].astype(int).astype(str)), KEPT)


def _named(bench: pd.DataFrame, kind: str) -> pd.DataFrame:
    kept = ["server", "tokens", "n", "value", "low", "high"]
    return bench[kept].rename(columns={"server": "setting"}).assign(kind=kind).reset_index(drop=True)

"""Names of trace formats -> loaders. A new format: one file here, one line in LOADERS, one conf/workload/*.yaml."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.core.trace import Trace
from workloads.settings import WorkloadSettings
from workloads.synthetic import SyntheticSettings, generate
from workloads.traces.admission import AdmissionReport, mean_rate_rps
from workloads.traces.azure import load_azure
from workloads.traces.burstgpt import load_burstgpt
from workloads.traces.custom import load_custom
from workloads.traces.errors import TraceError
from workloads.traces.lengths import load_lengths
from workloads.traces.mooncake import load_mooncake
from workloads.traces.qwen import load_qwen

SAMPLE = Path(__file__).resolve().parent.parent / "samples" / "qwen_like_2min.csv"
"""The embedded 2-minute trace: the default workload; see samples/README.md."""


def load_trace(settings: WorkloadSettings) -> tuple[Trace, AdmissionReport]:
    """The trace a workload names, and the report of its admission.

    Raises TraceError: an absent path, an option the format does not take, a row or rate that cannot be used.
    """
    loader = LOADERS[settings.format]
    for option in OWN_OPTIONS:
        if option not in loader.options and getattr(settings, option) not in (None, {}):
            raise TraceError(f"workload.{option} is not an option of format {settings.format} ({settings.name})")
    if loader.needs_path and not settings.path:
        raise TraceError(f"workload={settings.name} needs workload.path, the trace file to read")
    if not loader.needs_path and settings.path:
        raise TraceError(f"workload.path is not an option of format {settings.format}, which reads no file of yours")
    return loader.load(settings)


@dataclass(frozen=True, slots=True)
class Loader:
    """How one format is read: `options` are the settings that only it, or few, take."""

    load: Callable[[WorkloadSettings], tuple[Trace, AdmissionReport]]
    options: frozenset[str] = frozenset()
    needs_path: bool = True


def _azure(s: WorkloadSettings) -> tuple[Trace, AdmissionReport]:
    return load_azure(s.path or "", name=s.name, rules=s.admission_rules())


def _mooncake(s: WorkloadSettings) -> tuple[Trace, AdmissionReport]:
    return load_mooncake(s.path or "", name=s.name, rules=s.admission_rules())


def _burstgpt(s: WorkloadSettings) -> tuple[Trace, AdmissionReport]:
    return load_burstgpt(s.path or "", name=s.name, rules=s.admission_rules())


def _qwen(s: WorkloadSettings) -> tuple[Trace, AdmissionReport]:
    return load_qwen(s.path or "", name=s.name, follow_up=s.follow_up or "whole", rules=s.admission_rules())


def _lengths(s: WorkloadSettings) -> tuple[Trace, AdmissionReport]:
    rate = 2.75 if s.rate_rps is None else s.rate_rps
    return load_lengths(
        s.path or "", name=s.name, rate_rps=rate, arrival_seed=s.arrival_seed or 0, rules=s.admission_rules()
    )


def _custom(s: WorkloadSettings) -> tuple[Trace, AdmissionReport]:
    return load_custom(
        s.path or "",
        name=s.name,
        columns=s.columns,
        arrival_unit=s.arrival_unit or "s",
        rules=s.admission_rules(),
    )


def _sample(s: WorkloadSettings) -> tuple[Trace, AdmissionReport]:
    return load_custom(SAMPLE, name=s.name, columns={"class": "class"}, rules=s.admission_rules())


def _synthetic(s: WorkloadSettings) -> tuple[Trace, AdmissionReport]:
    defaults = SyntheticSettings()
    trace = generate(
        SyntheticSettings(
            requests=defaults.requests if s.requests is None else s.requests,
            span_s=defaults.span_s if s.span_s is None else s.span_s,
            process=s.process or defaults.process,
            process_cv=s.process_cv,
            trace_seed=s.trace_seed or 0,
        ),
        s.name,
    )
    count, longest = len(trace.rows), max(row.input_tokens for row in trace.rows)
    rate = mean_rate_rps(count, trace.span_s)
    report = AdmissionReport(
        source="generated", rows_read=count, rows_kept=count, span_s=trace.span_s, mean_rate_rps=rate,
        order_inversions=0, ties=0, zero_input_rows=0, zero_output_rows=0, bad_rows=0, longest_input_tokens=longest,
    )  # fmt: skip
    return trace, report


LOADERS: Mapping[str, Loader] = {
    "sample": Loader(_sample, needs_path=False),
    "synthetic": Loader(
        _synthetic, frozenset({"requests", "span_s", "process", "process_cv", "trace_seed"}), needs_path=False
    ),
    "azure": Loader(_azure),
    "mooncake": Loader(_mooncake),
    "qwen": Loader(_qwen, frozenset({"follow_up"})),
    "lengths": Loader(_lengths, frozenset({"rate_rps", "arrival_seed"})),
    "burstgpt": Loader(_burstgpt),
    "csv": Loader(_custom, frozenset({"columns", "arrival_unit"})),
}

OWN_OPTIONS: tuple[str, ...] = tuple(sorted({option for loader in LOADERS.values() for option in loader.options}))

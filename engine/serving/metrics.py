"""/metrics in Prometheus text. The package prometheus-client is optional and imported only here."""

from collections.abc import Iterator, Sequence
from typing import Any

from engine.core.clock import ns_to_seconds
from engine.serving.engine_state import FrontState, Snapshot

TTFT_BOUNDS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
DELAY_BOUNDS_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
COUNTERS = {
    "preemptions": "prefills preempted",
    "decisions": "scheduling rounds after arrivals and completions",
    "other_decisions": "scheduling rounds after cancellations, released KV and failures",
    "completed_requests": "requests completed",
    "failed_requests": "requests failed",
    "cancelled_requests": "requests their client left",
    "rejected": "requests refused by the scheduler",
    "prefill_tokens": "prompt tokens computed",
    "decode_tokens": "tokens decoded",
    "kv_sent": "requests whose KV left for another instance",
    "kv_received": "requests whose KV came from another instance",
}
GAUGES = {
    "waiting": "prefills waiting",
    "executing": "prefills executing",
    "preempted": "prefills preempted at this instant",
    "decoding": "requests that decode",
    "handing_over": "requests whose KV is about to come or to leave, or on its way",
    "kv_blocks_free": "KV blocks free",
    "kv_blocks_total": "KV blocks in the pool",
    "activation_bytes": "bytes reserved for activations",
}


class ServerMetrics:
    """What the HTTP process measures, beside what the engine reports when scraped.

    Raises ImportError without prometheus-client. A reset of the report shows as a counter reset.
    """

    def __init__(self) -> None:
        import prometheus_client

        self._prometheus = prometheus_client
        self._registry = prometheus_client.CollectorRegistry()
        self._ttft = prometheus_client.Histogram(
            "flowprefill_ttft_seconds",
            "from the arrival of the whole request to its first token",
            buckets=TTFT_BOUNDS_S,
            registry=self._registry,
        )

    def observe_ttft(self, ttft_ns: int) -> None:
        """One request got its first token."""
        self._ttft.observe(ns_to_seconds(ttft_ns))

    def render(self, snapshot: Snapshot | None, front: FrontState) -> tuple[bytes, str]:
        """The page and its content type. snapshot: None of an engine that gives no answer."""
        once = self._prometheus.CollectorRegistry()
        once.register(_FrontCollector(front))
        if snapshot is not None:
            once.register(_EngineCollector(snapshot))
        page = self._prometheus.generate_latest(self._registry) + self._prometheus.generate_latest(once)
        return page, self._prometheus.CONTENT_TYPE_LATEST


class _FrontCollector:
    def __init__(self, front: FrontState) -> None:
        self._front = front

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        front = self._front
        yield GaugeMetricFamily("flowprefill_open_requests", "requests not answered in full", front.open_requests)
        yield GaugeMetricFamily("flowprefill_stalled", "1 while an operator or the engine hangs", int(front.stalled))
        yield CounterMetricFamily("flowprefill_stalls", "operators that hung", front.stalls)


class _EngineCollector:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        report, live = self._snapshot.report, self._snapshot.live
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(f"flowprefill_{name}", text, getattr(live, name))
        yield GaugeMetricFamily(
            "flowprefill_kv_blocks_used", "KV blocks held", live.kv_blocks_total - live.kv_blocks_free
        )
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(f"flowprefill_{name}", text, getattr(report, name))
        for name, text, samples in (
            ("blocking", "from the decision to preempt until execution stopped", report.blocking_ns),
            ("arrival_to_decision", "from arrival to the first decision", report.arrival_to_decision_ns),
        ):
            buckets, total = _histogram(samples, DELAY_BOUNDS_S)
            yield HistogramMetricFamily(f"flowprefill_{name}_seconds", text, buckets, total)


def _histogram(samples_ns: Sequence[int], bounds_s: Sequence[float]) -> tuple[list[tuple[str, int]], float]:
    """Cumulative counts at each bound, and the sum in seconds."""
    seconds = [ns_to_seconds(sample) for sample in samples_ns]
    counts = [(str(bound), sum(1 for s in seconds if s <= bound)) for bound in bounds_s]
    return [*counts, ("+Inf", len(seconds))], sum(seconds)

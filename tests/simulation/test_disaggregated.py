"""Prefill and decode instances in virtual time, by numbers worked out by hand."""

import pytest

from engine.core.batch import Task, TaskKind
from engine.core.clock import NS_PER_MS, NS_PER_S
from engine.core.record import Status
from engine.core.slo import SLO
from engine.scheduling.batching import NoBatching
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.predictors.polynomial import PolynomialPredictor
from engine.scheduling.routing.round_robin import RoundRobin
from engine.scheduling.scheduler import Scheduler, SchedulerSettings
from engine.simulation.device import DeviceModel
from engine.simulation.devices.curve import CurveDevice
from engine.simulation.disaggregated import simulate_disaggregated
from engine.simulation.run import SimulatedRequest, SimulationResult, simulate
from engine.simulation.settings import SimulationSettings
from engine.simulation.simulated_transport import SimulatedTransport
from engine.simulation.timed_program import TimedProgram

DEVICE = CurveDevice(0.0, 1e-3, 0.0)
"""A millisecond a token, prefilled or decoded."""
TRANSPORT = SimulatedTransport(bytes_per_s=1e6, delay_s=0.005, token_bytes=100)
"""5 ms and a tenth of a millisecond a token."""


def scheduler(kv_blocks: int = 1000) -> Scheduler:
    settings = SchedulerSettings(kv_blocks, 10, 1 << 40, 100_000)
    return Scheduler(SlackEDF(), NoBatching(), PolynomialPredictor((0, 1e-3, 0, 0)), settings, lambda task: 1)


def request(name: str, due_ms: int, prompt: int, tokens: int, tbt_ms: int = 1000) -> SimulatedRequest:
    return SimulatedRequest(name, due_ms * NS_PER_MS, prompt, tokens, SLO(10 * NS_PER_S, tbt_ms * NS_PER_MS), "t")


def run(
    requests: list[SimulatedRequest], prefill: int = 1, decode: int = 1, kv_blocks: int = 1000, **more: object
) -> tuple[SimulationResult, list[Scheduler]]:
    schedulers = [*(scheduler() for _ in range(prefill)), *(scheduler(kv_blocks) for _ in range(decode))]
    result = simulate_disaggregated(
        requests,
        schedulers[:prefill],
        schedulers[prefill:],
        more.pop("device", DEVICE),  # type: ignore[arg-type]
        SimulationSettings(),
        TRANSPORT,
        RoundRobin(),
        lambda tokens: tokens * NS_PER_MS,
        10,
        **more,  # type: ignore[arg-type]
    )
    for each in schedulers:
        each.check()
    return result, schedulers


def test_a_request_is_prefilled_moved_and_decoded() -> None:
    result, schedulers = run([request("a", 0, 100, 3)])
    (record,) = result.records
    # 100 ms of prefill; 5 + 10 ms on the transport; a step of a millisecond for each token more.
    assert (record.first_token_at_ns, record.last_token_at_ns) == (100 * NS_PER_MS, 117 * NS_PER_MS)
    assert (record.tbt_max_ns, record.output_tokens, record.status) == (16 * NS_PER_MS, 3, Status.OK)
    report = result.report
    assert (report.kv_sent, report.kv_received, report.completed_requests, report.decode_tokens) == (1, 1, 1, 2)
    assert [each.kv_free_blocks for each in schedulers] == [1000, 1000]


def test_decoding_goes_on_beside_a_long_prefill() -> None:
    requests = [request("a", 0, 100, 5), request("long", 101, 2000, 1)]
    apart, _ = run(requests)
    together = simulate(requests, scheduler(), DEVICE, SimulationSettings())
    assert apart.records[0].tbt_max_ns == 16 * NS_PER_MS
    assert (together.records[0].tbt_max_ns or 0) > 1900 * NS_PER_MS


def test_prefill_instances_take_turns() -> None:
    result, _ = run([request(name, 0, 100, 1) for name in "ab"], prefill=2)
    assert [record.first_token_at_ns for record in result.records] == [100 * NS_PER_MS] * 2


def test_a_full_decode_instance_keeps_the_kv_where_it_is() -> None:
    # 11 blocks each of 12: b's KV stays at the prefill instance until a is over.
    result, _ = run([request("a", 0, 100, 10), request("b", 0, 100, 2)], kv_blocks=12)
    a, b = result.records
    assert a.last_token_at_ns == 124 * NS_PER_MS
    assert b.first_token_at_ns == 200 * NS_PER_MS  # by then a is over
    result, _ = run([request("a", 0, 100, 10), request("b", 0, 5, 20)], kv_blocks=12)
    a, b = result.records
    assert b.first_token_at_ns == 105 * NS_PER_MS
    # Room at 124 ms, 5.5 ms on the transport, one step.
    assert (b.first_token_at_ns or 0) + (b.tbt_max_ns or 0) == 130_500_000


def test_a_client_that_gives_up_leaves_nothing() -> None:
    late = [SimulatedRequest(f"r{i}", 0, 100, 4, SLO(60 * NS_PER_MS), "t") for i in range(6)]
    result, schedulers = run(late, give_up_slo_multiple=2.0)
    assert {record.status for record in result.records} == {Status.OK, Status.GAVE_UP}
    assert [each.kv_free_blocks for each in schedulers] == [1000, 1000]
    assert all(each.live.handing_over == 0 for each in schedulers)


def test_the_drain_ends_the_run() -> None:
    result, _ = run([request("a", 0, 100, 3)], drain_ns=50 * NS_PER_MS)
    assert result.records[0].status is Status.UNFINISHED


def test_same_arguments_same_result() -> None:
    requests = [request(f"r{i}", 7 * i, 20 + 13 * (i % 5), 1 + i % 4) for i in range(40)]
    assert run(requests, 2, 2)[0] == run(requests, 2, 2)[0]


def test_rounds_before_operators_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds = event only"):
        simulate_disaggregated(
            [], [], [], DEVICE, SimulationSettings(rounds="operator"), TRANSPORT, RoundRobin(), lambda tokens: 1, 10
        )


class Unmeasured:
    """A device that knows no hand-over."""

    def program(self, task: Task) -> TimedProgram:
        assert task.kind in (TaskKind.PREFILL, TaskKind.DECODE_STEP)
        return DEVICE.program(task)


def test_no_device_model_is_asked_for_a_transfer() -> None:
    device: DeviceModel = Unmeasured()
    assert run([request("a", 0, 10, 2)], device=device)[0].records[0].status is Status.OK


@pytest.mark.parametrize("wrong", [{"bytes_per_s": 0.0}, {"delay_s": -1.0}, {"token_bytes": 0}])
def test_a_link_that_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a KV transport needs"):
        SimulatedTransport(**{"bytes_per_s": 1.0, "delay_s": 0.0, "token_bytes": 1, **wrong})  # type: ignore[arg-type]

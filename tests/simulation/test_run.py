"""Whole simulated runs, by hand: 1000 ns a token, in four operators unless said otherwise."""

import io
import json
import tracemalloc
from collections.abc import Iterator

import pytest

from baselines.policies.request_restart import RequestRestart
from engine.core.batch import Task
from engine.core.ports import Batching, Plan, Policy, View
from engine.core.record import RequestRecord, Status
from engine.core.slo import SLO
from engine.scheduling.batching import NoBatching, SLOAwareBatching
from engine.scheduling.decision_log import DecisionLog, read, replay
from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.predictors.polynomial import PolynomialPredictor
from engine.scheduling.scheduler import Scheduler, SchedulerSettings
from engine.simulation.devices.curve import CurveDevice
from engine.simulation.disturbance import ErringPredictor
from engine.simulation.run import SimulatedRequest, SimulationResult, simulate
from engine.simulation.settings import SimulationSettings
from engine.simulation.timed_program import TimedProgram
from tests.scheduling.rig import MS, SETTINGS, TokenPredictor, rows
from tests.simulation.simulated_world import ListedDevice

NS = 1e-9
IDEAL = SimulationSettings()


def asked(name: str, due_ns: int, tokens: int, slo_ns: int | None = 10 * MS, max_tokens: int = 1) -> SimulatedRequest:
    return SimulatedRequest(name, due_ns, tokens, max_tokens, SLO(slo_ns), task="text")


def scheduler(
    policy: Policy | None = None, batching: Batching | None = None, limits: SchedulerSettings = SETTINGS
) -> Scheduler:
    return Scheduler(policy or SlackEDF(), batching or NoBatching(), TokenPredictor(), limits, rows)


def run(*requests: SimulatedRequest, settings: SimulationSettings = IDEAL, **more: object) -> SimulationResult:
    return simulate(requests, more.pop("of", None) or scheduler(), ListedDevice(), settings, **more)


def firsts(result: SimulationResult) -> dict[str, int | None]:
    return {record.request_id: record.first_token_at_ns for record in result.records}


def statuses(result: SimulationResult) -> dict[str, str]:
    return {record.request_id: record.status.value for record in result.records}


LONG_THEN_URGENT = (asked("A", 0, 100), asked("B", 30_000, 4, slo_ns=MS))
"""A would run from 0 to 100 us with boundaries every 25 us; B comes at 30 us."""


def test_an_urgent_request_preempts_at_the_next_boundary() -> None:
    result = run(*LONG_THEN_URGENT)
    assert firsts(result) == {"A": 104_000, "B": 54_000}
    assert result.report.blocking_ns == (20_000,)
    assert result.report.preemptions == 1
    assert result.report.executed_ns == 104_000
    assert (result.report.decisions, result.report.other_decisions) == (4, 1)
    assert (result.ended_at_ns, result.events) == (104_000, 7)  # two of each but one pause


def test_fcfs_lets_it_wait() -> None:
    result = run(*LONG_THEN_URGENT, of=scheduler(FCFS()))
    assert firsts(result) == {"A": 100_000, "B": 104_000}
    assert result.report.blocking_ns == ()


def test_restart_loses_what_was_computed() -> None:
    result = run(*LONG_THEN_URGENT, of=scheduler(RequestRestart(SlackEDF())))
    assert firsts(result) == {"A": 154_000, "B": 54_000}
    assert result.report.executed_ns == 154_000


def test_a_curve_stops_at_once_and_loses_the_switch() -> None:
    device, settings = CurveDevice(0.0, 1e-6, 0.0), SimulationSettings(switch_s=2500 * NS)
    result = simulate(LONG_THEN_URGENT, scheduler(), device, settings)
    assert firsts(result) == {"A": 106_500, "B": 36_500}
    assert result.report.blocking_ns == (2500,)


def test_a_record_says_what_the_client_saw() -> None:
    (record,) = run(asked("A", 7000, 8, max_tokens=3)).records
    assert record == RequestRecord(
        request_id="A",
        task="text",
        prompt_tokens=8,
        max_tokens=3,
        ttft_slo_ns=10 * MS,
        tbt_slo_ns=None,
        due_at_ns=7000,
        sent_at_ns=7000,
        first_token_at_ns=15_000,
        last_token_at_ns=15_200,  # a decode step of one row takes 100 ns
        output_tokens=3,
        tbt_max_ns=100,
        server_prompt_tokens=8,
        cached_tokens=0,
        status=Status.OK,
    )


def test_a_round_delays_commands_and_tokens() -> None:
    result = run(*LONG_THEN_URGENT, settings=SimulationSettings(round_s=100 * NS))
    # A begins at 100; the pause is heard at 30 100; A stops at 50 100, B runs from 50 200 to 54 200, heard at 54 300.
    assert firsts(result) == {"A": 104_300 + 100, "B": 54_300}
    assert result.report.blocking_ns == (20_100,)
    assert result.report.scheduling_ns == 5 * 100


def test_a_request_reaches_the_engine_later_than_it_is_due() -> None:
    settings = SimulationSettings(arrival_delay_s=10_000 * NS)
    result = run(*LONG_THEN_URGENT, settings=settings)
    # A from 10 us on; B has it at 40 us, A stops at 60 us.
    assert firsts(result) == {"A": 114_000, "B": 64_000}
    assert [record.due_at_ns for record in result.records] == [0, 30_000]  # the client counts from there
    late = [one.first_token_at_ns for one in run(asked("C", 5_000, 4), settings=settings).records]
    assert late == [19_000]


def test_who_gives_up_on_the_way_is_cancelled_once_the_engine_has_the_request() -> None:
    settings = SimulationSettings(arrival_delay_s=10_000 * NS)
    requests = (asked("A", 0, 100, slo_ns=None), asked("B", 0, 100, slo_ns=5_000))
    result = run(*requests, of=scheduler(FCFS()), settings=settings, give_up_slo_multiple=1)
    assert statuses(result) == {"A": "ok", "B": "gave_up"}
    assert result.ended_at_ns == 110_000  # B was never computed


def test_a_poll_sees_events_at_its_ticks_only() -> None:
    result = run(*LONG_THEN_URGENT, settings=SimulationSettings(rounds="poll", poll_s=40_000 * NS, round_s=100 * NS))
    # A begins at 0 + 100. B is seen at 40 000, A stops at 50 100, which is seen at 80 000; B runs from 80 100 to
    # 84 100, seen at 120 000; A goes on from 120 100 to 170 100, seen at 200 000.
    assert firsts(result) == {"A": 200_100, "B": 120_100}
    assert result.report.blocking_ns == (10_100,)
    assert result.report.arrival_to_decision_ns == (0, 10_000)
    assert result.report.decisions + result.report.other_decisions == 6  # ticks at 0, 40, ..., 200 us
    assert result.report.scheduling_ns == 6 * 100


def test_rounds_before_every_operator_lengthen_each_and_stop_at_once() -> None:
    result = run(*LONG_THEN_URGENT, settings=SimulationSettings(rounds="operator", round_s=100 * NS))
    # Operators of A begin at 0, 25 100, 50 200: there B is seen and A stops. B: four times 1100 ns.
    assert firsts(result) == {"A": 50_200 + 4400 + 50_200, "B": 54_600}
    assert result.report.blocking_ns == (0,)
    assert result.report.arrival_to_decision_ns == (0, 20_200)
    # A round before each of the 8 operators, one where A stopped, one at the end.
    report = result.report
    assert report.scheduling_ns == (report.decisions + report.other_decisions) * 100
    assert report.decisions + report.other_decisions == 8 + 1 + 1


def test_what_is_due_at_one_instant_comes_in_one_call() -> None:
    log = io.StringIO()
    run(asked("A", 0, 4), asked("B", 4000, 4), asked("C", 4000, 4), log=DecisionLog(log, {}))
    calls = [json.loads(line) for line in log.getvalue().splitlines()[1:]]
    (at_4000,) = [call["events"] for call in calls if call["now_ns"] == 4000 and len(call["events"]) > 1]
    assert [event["type"] for event in at_4000] == ["Completion", "Arrival", "Arrival"]


def test_a_client_gives_up_at_a_multiple_of_its_slo() -> None:
    requests = (asked("A", 0, 100), asked("B", 10, 4, slo_ns=10_000), asked("C", 20, 4, slo_ns=None))
    result = run(*requests, of=scheduler(FCFS()), give_up_slo_multiple=5)
    assert statuses(result) == {"A": "ok", "B": "gave_up", "C": "ok"}
    gone = result.records[1]
    assert gone.reason == "no token 5 x TTFT SLO after it was due"
    assert (gone.first_token_at_ns, gone.output_tokens) == (None, 0)
    assert result.report.cancelled_requests == 1
    assert firsts(result)["C"] == 104_000  # B never ran


def test_a_client_with_a_token_stays() -> None:
    result = run(asked("A", 0, 4, slo_ns=5000, max_tokens=30), give_up_slo_multiple=1)
    assert statuses(result) == {"A": "ok"}
    assert result.report.cancelled_requests == 0


def test_the_executing_prefill_of_a_client_that_left_is_stopped() -> None:
    result = run(asked("A", 0, 100, slo_ns=30_000), asked("B", 0, 4), of=scheduler(FCFS()), give_up_slo_multiple=1)
    assert statuses(result) == {"A": "gave_up", "B": "ok"}
    assert firsts(result)["B"] == 54_000
    assert result.report.blocking_ns == ()


def test_a_request_that_gives_up_between_two_ticks_is_seen_and_forgotten_at_once() -> None:
    settings = SimulationSettings(rounds="poll", poll_s=40_000 * NS)
    result = run(asked("A", 1000, 4, slo_ns=5000), settings=settings, give_up_slo_multiple=2)
    assert statuses(result) == {"A": "gave_up"}
    assert result.report.prefill_tokens == 0


def test_refused_requests_are_records_too() -> None:
    result = run(asked("A", 0, 1 << 21), asked("B", 0, 4))
    assert statuses(result) == {"A": "rejected", "B": "ok"}
    assert "exceed the limit" in result.records[0].reason
    assert result.report.rejected == 1


def test_the_drain_ends_the_run() -> None:
    requests = (asked("A", 0, 100), asked("B", 1000, 100), asked("C", 2000, 100))
    result = run(*requests, of=scheduler(FCFS()), drain_ns=200_000)
    assert statuses(result) == {"A": "ok", "B": "ok", "C": "unfinished"}
    assert result.records[2].reason == "not over 0.0002 s after the last due instant"
    assert result.ended_at_ns == 202_000
    assert statuses(run(*requests, of=scheduler(FCFS()), drain_ns=400_000))["C"] == "ok"


def test_what_a_policy_never_runs_is_unfinished() -> None:
    class Idle:
        def plan(self, view: View, now_ns: int) -> Plan:
            return Plan([item for item in view.items if item.new_tokens < 50])

    result = run(asked("A", 0, 100), asked("B", 5, 4), of=scheduler(Idle()))
    assert statuses(result) == {"A": "unfinished", "B": "ok"}
    assert result.records[0].reason == "the engine fell idle before the request was over"


def test_records_come_in_order_of_due_instants() -> None:
    result = run(asked("A", 0, 400), asked("B", 5, 4, slo_ns=MS), asked("C", 5, 4, slo_ns=MS // 2))
    assert [record.request_id for record in result.records] == ["A", "B", "C"]


def test_no_requests_no_records() -> None:
    result = run()
    assert (result.records, result.ended_at_ns, result.events) == ((), 0, 0)


@pytest.mark.parametrize(
    ("requests", "more", "words"),
    [
        ((asked("A", 5, 1), asked("B", 4, 1)), {}, "request B: due before"),
        ((asked("A", 0, 10), asked("A", 1, 10)), {}, "request id 'A' is used by two requests"),
        ((), {"give_up_slo_multiple": 0.0}, "give_up_slo_multiple"),
    ],
)
def test_plans_that_cannot_be(requests: tuple[SimulatedRequest, ...], more: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run(*requests, **more)


def test_what_a_device_does_not_know_is_said() -> None:
    class Short:
        def program(self, task: Task) -> TimedProgram:
            raise ValueError("'attention' was not measured at 4 tokens")

    with pytest.raises(ValueError, match="'attention' was not measured"):
        simulate([asked("A", 0, 4)], scheduler(), Short(), IDEAL)


def crowd(count: int, gap_ns: int = 40_000) -> Iterator[SimulatedRequest]:
    """More than the device can do for a while, then less; some urgent, some hopeless, some without SLO."""
    at_ns = 0
    for place in range(count):
        at_ns += gap_ns * (1 if place % 40 < 30 else 4)
        tokens = (7, 90, 12, 160, 31)[place % 5]
        slo_ns = (60_000, 900_000, 300_000, None, 1)[place % 5]
        yield asked(f"r{place}", at_ns, tokens, slo_ns, max_tokens=1 + 2 * (place % 7 == 0))


NOISY = SimulationSettings(3e-7, 2e-6, 1e-6, 2e-7, noise_cv=0.05, noise_seed=3)


@pytest.mark.parametrize("rounds", ["event", "poll", "operator"])
def test_the_decision_log_of_a_run_replays_exactly(rounds: str) -> None:
    def fresh() -> Scheduler:
        predictor = ErringPredictor(TokenPredictor(), 0.4, seed=1)
        limits = SchedulerSettings(60, 16, 400, 1000, max_preempted=2)
        return Scheduler(SlackEDF(), SLOAwareBatching(0.1, 64), predictor, limits, rows)

    file = io.StringIO()
    settings = SimulationSettings(3e-7, 2e-6, 1e-6, 2e-7, rounds, 5e-6, noise_cv=0.05, noise_seed=3)
    log = DecisionLog(file, {"made": "by the simulator"})
    simulate(crowd(300), fresh(), ListedDevice(), settings, give_up_slo_multiple=8, log=log)
    text = file.getvalue()
    assert all(f'"{kind}"' in text for kind in ("Preempted", "Cancelled", "Resume", "Discard", "ReleaseKV"))
    header, calls = read(text.splitlines())
    assert header == {"made": "by the simulator"}
    assert replay(calls, fresh()) == []


def test_same_seed_same_records_and_another_seed_others() -> None:
    def played(seed: int) -> SimulationResult:
        settings = SimulationSettings(round_s=1e-7, noise_cv=0.05, noise_seed=seed)
        return simulate(crowd(120), scheduler(), ListedDevice(), settings, give_up_slo_multiple=6)

    assert played(1) == played(1)
    assert played(1) != played(2)


def test_records_are_handed_out_and_not_kept() -> None:
    whole = simulate(crowd(200), scheduler(), ListedDevice(), NOISY)
    seen: list[RequestRecord] = []
    result = simulate(crowd(200), scheduler(), ListedDevice(), NOISY, on_record=seen.append)
    assert result.records == ()
    assert sorted(seen, key=lambda record: record.due_at_ns) == list(whole.records)
    assert result.report == whole.report


def test_memory_grows_with_live_requests_only() -> None:
    def peak(count: int) -> int:
        predictor = PolynomialPredictor((0.0, 1e-6, 0.0, 0.0))
        engine = Scheduler(SlackEDF(), NoBatching(), predictor, SETTINGS, rows)

        def forget(record: RequestRecord) -> None:
            if int(record.request_id[1:]) % 100 == 0:
                engine.reset_report()  # its samples grow up to their bound

        tracemalloc.start()
        simulate(crowd(count, 80_000), engine, ListedDevice(), NOISY, give_up_slo_multiple=20, on_record=forget)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(200)  # what is made once
    # 1200 more requests; a record alone takes some 300 bytes. What Python keeps for reuse makes up for the rest.
    assert peak(1600) < peak(400) + 100_000

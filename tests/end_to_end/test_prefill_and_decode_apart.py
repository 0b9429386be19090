"""One prefill and one decode instance with a real model: the embedded trace, the same tokens, and kill -9."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.core.batch import Sequence
from engine.core.commands import Start
from engine.core.events import Completion
from engine.core.record import Status
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.payload import Payload
from engine.torch_backend.sampling import SamplingSettings
from harness.loadgen.player import play
from harness.loadgen.settings import PlayerSettings, ShowProgress, Target
from tests.serving.proxy_process import REAL_PROXY, ProxyProcess, running_proxy
from tests.serving.server_process import eventually
from tests.torch_backend.engine_run import prompt
from tests.torch_backend.executor_rig import Rig, decode, prefill
from workloads.plan import PlanSettings, plan_requests
from workloads.prompts import PromptSettings
from workloads.settings import WorkloadSettings
from workloads.slo import SLORule, SLOSettings
from workloads.slo import Target as Objectives
from workloads.traces.catalogue import load_trace

FLAGS = ("--model", "cpu_tiny", "--device", "cpu", "--max-waiting-for-decode", "1000")
FIRST, *FURTHER = sorted(os.sched_getaffinity(0))
PINNED = ("--engine-cpu", str(FIRST), "--server-cpu", str(FIRST + 1)) if FIRST + 1 in FURTHER else ()
"""A CPU for each instance, where there are two in a row."""


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A decode instance that holds far fewer requests than the trace has under way at one time."""
    with running_proxy(tmp_path_factory.mktemp("kv"), [*FLAGS, *PINNED, "--kv-blocks", "200"], REAL_PROXY) as started:
        yield started


@pytest.fixture(autouse=True)
def _nothing_is_left(proxy: ProxyProcess) -> Iterator[None]:
    proxy.server.call("POST", "/report/reset")
    yield
    eventually(proxy.healthy, "both instances serve", 120)
    proxy.check_nothing_left()


def test_every_request_of_the_embedded_trace_is_accounted_for(proxy: ProxyProcess) -> None:
    trace, _ = load_trace(WorkloadSettings(name="sample", format="sample"))
    rule = SLORule(SLOSettings("uniform", uniform=Objectives(ttft_s=600.0, tbt_s=600.0)))
    plan = PlanSettings(rate_scale=60.0, length_scale=1 / 64, output_tokens="trace")
    requests = plan_requests(trace, plan, rule, PromptSettings(512, content="apart"), seed=0)
    settings = PlayerSettings(request_timeout_s=300.0, drain_s=300.0, progress=ShowProgress.OFF)
    target = Target(f"http://127.0.0.1:{proxy.server.port}", "cpu_tiny")
    records = asyncio.run(play(requests, target, settings)).records
    assert len(records) == len(requests) == len(trace.rows) == 327
    assert {record.status for record in records} == {Status.OK}, [r.reason for r in records if r.reason][:3]
    assert all(record.output_tokens == record.max_tokens for record in records)
    assert all(record.tbt_max_ns is not None for record in records if record.max_tokens > 2)
    report = proxy.server.report()
    handed_over = sum(request.max_tokens > 1 for request in requests)
    assert handed_over > 100
    assert (report["kv_sent"], report["kv_received"]) == (handed_over, handed_over)
    assert report["completed_requests"] == len(requests)


def test_the_tokens_are_those_of_one_engine(proxy: ProxyProcess) -> None:
    token_ids, count = prompt(60), 12
    rig = Rig(load_model("cpu_tiny"))
    rig.executor.register("a", Payload(tuple(token_ids), SamplingSettings(count, ignore_eos=True)))
    expected: list[int | None] = []
    command: Start = prefill(0, Sequence("a", 0, len(token_ids)))
    for step in range(1, count + 1):
        rig.executor.submit([command])
        event = rig.event()
        assert isinstance(event, Completion)
        expected.append(event.outputs[0].token_id)
        command = decode(step, Sequence("a", len(token_ids) + step - 1, 1))
    rig.executor.close()
    status, body = proxy.server.complete(token_ids, max_tokens=count, ignore_eos=True, temperature=0)
    assert (status, body["choices"][0]["token_ids"]) == (200, expected)


@pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
def test_an_instance_is_killed_with_requests_on_it(proxy: ProxyProcess, name: str) -> None:
    """Each request ends, well or with an error in its stream, and the next ones are served."""
    streams = [proxy.begin(7, max_tokens=400, prompt_tokens=40) for _ in range(3)]
    for stream in streams:
        assert stream.event()["choices"]
    proxy.kill(name)
    for stream in streams:
        last = stream.rest()[-2]
        assert "error" in last or last["choices"][0]["finish_reason"] == "length"
    eventually(proxy.healthy, f"{name} serves again", 120)
    assert proxy.server.complete([7] * 40, max_tokens=5, ignore_eos=True)[0] == 200


@pytest.mark.skipif(not PINNED, reason="needs two CPUs in a row")
def test_instances_have_cpus_of_their_own_also_those_started_again(proxy: ProxyProcess) -> None:
    assert os.sched_getaffinity(proxy.server.process.pid) == {FIRST + 1}
    pids = proxy.pids()
    assert os.sched_getaffinity(pids["prefill-0"]) == {FIRST}
    assert os.sched_getaffinity(pids["decode-0"]) == {FIRST + 1}


def test_no_file_is_left_in_the_machine_s_memory(proxy: ProxyProcess) -> None:
    assert Path(proxy.files.path).is_dir()
    assert list(Path(proxy.files.path).iterdir()) == []

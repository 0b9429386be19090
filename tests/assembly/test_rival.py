"""vLLM and SGLang as systems: their rules, and a point's settings in tokens as sent."""

from typing import Any

import pytest

from baselines.servers.launch import LaunchSettings
from harness.assembly.point import check_system, read_point
from harness.assembly.reading import SettingsError, read
from harness.assembly.rival import launch_settings
from harness.assembly.settings import SystemSettings
from harness.experiments.compose import outside_hydra
from harness.experiments.fingerprint import PointInput, point_id

GIVEN = PointInput("trace", "profile", 1.0)


def system(**changed: Any) -> SystemSettings:
    plain = {"name": "vllm", "series": "vLLM", "backend": "vllm", "policy": "fcfs", "slo_fields": "none"}
    return read(SystemSettings, {**plain, **changed}, "system")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"batching": "chunked"}, "system.batching means nothing to vllm"),
        ({"base_url": "http://h:1"}, "system.base_url means nothing to vllm"),
        ({"policy": "edf"}, "must be one of fcfs, priority, got 'edf'"),
        ({"policy": "priority"}, "needs system.slo_fields=priority_low_first, got none"),
        ({"slo_fields": "fields"}, "needs system.slo_fields=none, got fields"),
        ({"backend": "sglang", "policy": "priority", "slo_fields": "priority_low_first"}, "=priority_high_first"),
    ],
)
def test_what_a_rival_does_not_have_is_refused(changed: dict[str, Any], sentence: str) -> None:
    check_system(system())
    with pytest.raises(SettingsError, match=sentence):
        check_system(system(**changed))


def test_a_rivals_settings_belong_to_rivals() -> None:
    external = {"backend": "server", "policy": "", "base_url": "http://h:1"}
    check_system(system(**external))
    for changed in ({"prefix_cache": True}, {"extra_flags": ["--x"]}):
        with pytest.raises(SettingsError, match="belongs to vllm and sglang, not to system=vllm"):
            check_system(system(**external, **changed))


def test_a_point_becomes_launch_settings_with_scaled_tokens() -> None:
    with outside_hydra() as job:
        point = read_point(job(["system=sglang_priority", "device.kind=cpu"]).config)
    assert launch_settings(point, "folder") == LaunchSettings(
        model="folder", served_model="cpu_demo", device="cpu", dtype="float32", policy="priority",
        max_context_tokens=8192, kv_tokens=92252, chunk_tokens=512,
    )  # fmt: skip


def test_extra_flags_come_from_the_command_line_and_change_the_id() -> None:
    with outside_hydra() as job:
        plain = read_point(job(["system=vllm"]).config)
        more = read_point(job(["system=vllm", "system.extra_flags=['--max-num-seqs','8']"]).config)
    assert more.system.extra_flags == ("--max-num-seqs", "8")
    assert point_id(plain, GIVEN) != point_id(more, GIVEN)


def test_the_authors_fork_may_lack_an_address_and_another_server_may_not() -> None:
    with outside_hydra() as job:
        fork = read_point(job(["system=authors_fork"]).config).system
        with pytest.raises(SettingsError, match=r"system=external needs system\.base_url"):
            read_point(job(["system=external"]).config)
    assert (fork.base_url, fork.slo_fields) == (None, "vllm_xargs")
    assert fork.without_url is not None

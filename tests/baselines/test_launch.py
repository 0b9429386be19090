"""Settings to the command lines of vLLM and SGLang, and the refusals before anything starts."""

import dataclasses
from pathlib import Path

import pytest

from baselines.servers import sglang, vllm
from baselines.servers.known_flags import LISTS, flags_in, known_flags, refuse_unknown
from baselines.servers.launch import Launch, LaunchError, LaunchSettings, flag_names

SETTINGS = LaunchSettings(
    model="checkpoints/cpu_demo",
    served_model="cpu_demo",
    device="cpu",
    dtype="float32",
    policy="fcfs",
    max_context_tokens=8192,
    kv_tokens=1000,
    chunk_tokens=512,
)
LAUNCHES = {"vllm": vllm.launch, "sglang": sglang.launch}
VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.23"}


def value(launch: Launch, flag: str) -> str:
    assert launch.arguments.count(flag) == 1
    return launch.arguments[launch.arguments.index(flag) + 1]


def test_vllm_on_a_cpu() -> None:
    launch = vllm.launch(SETTINGS)
    assert launch.argv("python", 8000) == (
        "python", "-m", "vllm.entrypoints.openai.api_server",
        "--model", "checkpoints/cpu_demo", "--served-model-name", "cpu_demo", "--dtype", "float32",
        "--max-model-len", "8192", "--block-size", "128", "--num-gpu-blocks-override", "8",
        "--scheduling-policy", "fcfs", "--no-enable-prefix-caching", "--max-num-batched-tokens", "512",
        "--enforce-eager", "--host", "127.0.0.1", "--port", "8000",
    )  # fmt: skip
    assert launch.env["OMP_NUM_THREADS"] == "1"
    assert launch.env["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert launch.model_process == "VLLM::Worker"


def test_stock_vllm_loads_no_plugin_and_ours_runs_the_model_in_the_schedulers_process() -> None:
    assert vllm.launch(SETTINGS).env["VLLM_PLUGINS"] == ""
    flags = ("--distributed-executor-backend", "vllm_flowprefill.executor.InlineExecutor")
    launch = vllm.launch(dataclasses.replace(SETTINGS, extra_flags=flags))
    assert launch.env["VLLM_PLUGINS"] == "flowprefill"
    assert launch.model_process == "VLLM::EngineCore"


def test_sglang_on_a_cpu() -> None:
    launch = sglang.launch(SETTINGS)
    assert launch.argv("python", 8000) == (
        "python", "-m", "sglang.launch_server",
        "--model-path", "checkpoints/cpu_demo", "--served-model-name", "cpu_demo", "--dtype", "float32",
        "--device", "cpu", "--context-length", "8192", "--max-total-tokens", "1000", "--schedule-policy", "fcfs",
        "--chunked-prefill-size", "512", "--disable-radix-cache", "--attention-backend", "torch_native",
        "--sleep-on-idle", "--host", "127.0.0.1", "--port", "8000",
    )  # fmt: skip
    assert launch.env["SGLANG_USE_CPU_ENGINE"] == "1"


def test_priority_is_a_policy_of_both() -> None:
    priority = dataclasses.replace(SETTINGS, policy="priority")
    assert value(vllm.launch(priority), "--scheduling-policy") == "priority"
    launch = sglang.launch(priority)
    assert value(launch, "--schedule-policy") == "fcfs"
    assert "--enable-priority-scheduling" in launch.arguments
    assert "--enable-priority-scheduling" not in sglang.launch(SETTINGS).arguments


def test_without_a_chunk_size_the_server_keeps_its_own() -> None:
    free = dataclasses.replace(SETTINGS, chunk_tokens=None)
    assert "--max-num-batched-tokens" not in vllm.launch(free).arguments
    assert "--chunked-prefill-size" not in sglang.launch(free).arguments


def test_prefix_cache_and_dummy_weights() -> None:
    changed = dataclasses.replace(SETTINGS, prefix_cache=True, dummy_weights=True)
    assert "--enable-prefix-caching" in vllm.launch(changed).arguments
    assert "--disable-radix-cache" not in sglang.launch(changed).arguments
    assert all(value(launch(changed), "--load-format") == "dummy" for launch in LAUNCHES.values())


def test_on_cuda_nothing_of_the_cpu_is_left() -> None:
    cuda = dataclasses.replace(SETTINGS, device="cuda", dtype="bfloat16")
    launch = vllm.launch(cuda)
    assert "--enforce-eager" not in launch.arguments
    assert not any("CPU" in name for name in launch.env)
    assert value(launch, "--num-gpu-blocks-override") == "63"
    launch = sglang.launch(cuda)
    assert value(launch, "--device") == "cuda"
    assert "torch_native" not in launch.arguments
    assert "SGLANG_USE_CPU_ENGINE" not in launch.env


@pytest.mark.parametrize("server", LAUNCHES)
def test_extra_flags_come_last_and_owned_ones_are_refused(server: str) -> None:
    launch = LAUNCHES[server]
    arguments = launch(dataclasses.replace(SETTINGS, extra_flags=("--log-level", "error"))).arguments
    assert arguments[-4:] == ("--log-level", "error", "--host", "127.0.0.1")
    for words in (("--port", "1"), ("--dtype=float16",), ("--served_model_name", "x")):
        with pytest.raises(LaunchError, match=r"system.extra_flags: --[a-z-]+ is decided by"):
            launch(dataclasses.replace(SETTINGS, extra_flags=words))


def test_a_negated_flag_is_owned_too() -> None:
    with pytest.raises(LaunchError, match=r"--no-enable-prefix-caching is decided by system\.prefix_cache"):
        vllm.launch(dataclasses.replace(SETTINGS, extra_flags=("--no-enable-prefix-caching",)))


def test_flag_names_of_command_line_words() -> None:
    assert flag_names(["--a_b=1", "--c", "-1", "--d.e.f", "2", "-O3"]) == ("--a-b", "--c", "--d", "-O3")
    with pytest.raises(LaunchError, match="begins with '64', which is no flag"):
        flag_names(["64"])


@pytest.mark.parametrize("server", LAUNCHES)
def test_a_flag_nobody_knows_is_refused_by_name(server: str) -> None:
    known = known_flags(server, VERSIONS[server], "no-such-python")  # type: ignore[arg-type]
    refuse_unknown(["--tensor-parallel-size", "2"], known, server)
    with pytest.raises(LaunchError, match=f"{server} has no flag --tensor-paralel-size; did you mean --tensor-paral"):
        refuse_unknown(["--tensor-paralel-size", "2"], known, server)


@pytest.mark.parametrize("server", LAUNCHES)
def test_every_flag_we_set_is_one_the_pinned_version_knows(server: str) -> None:
    known = known_flags(server, VERSIONS[server], "no-such-python")  # type: ignore[arg-type]
    for device in ("cpu", "cuda"):
        for policy in ("fcfs", "priority"):
            settings = dataclasses.replace(SETTINGS, device=device, policy=policy, dummy_weights=True)
            for prefix_cache in (False, True):
                words = LAUNCHES[server](dataclasses.replace(settings, prefix_cache=prefix_cache)).argv("python", 1)
                refuse_unknown(words[3:], known, server)


def test_a_version_without_a_list_is_asked(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho '  --one-flag, --two_flag INT  as in --no-three'\n")
    fake.chmod(0o755)
    assert known_flags("vllm", "99.0", str(fake)) == {"--one-flag", "--two-flag", "--no-three"}
    with pytest.raises(LaunchError, match="cannot ask sglang for its flags"):
        known_flags("sglang", "99.0", str(tmp_path / "absent"))


def test_flags_in_a_help_text() -> None:
    assert flags_in("usage: x [--a-b B] [-c]\n --d, --no-d  a--b is none") == {"--a-b", "--d", "--no-d"}


def test_the_committed_lists_are_of_the_pinned_versions() -> None:
    assert {path.stem for path in LISTS.glob("*.txt")} == {f"{name}-{version}" for name, version in VERSIONS.items()}

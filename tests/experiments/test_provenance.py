"""Where a number comes from is kept with it, and nothing that only its user may know."""

import json
import os
from pathlib import Path

import pytest

from harness.assembly.point import read_point
from harness.assembly.reading import SettingsError
from harness.experiments.compose import outside_hydra
from harness.experiments.machine_facts import GPU_FIELDS, gpus, machine_facts
from harness.experiments.provenance import commit, provenance
from harness.experiments.secrets_left_out import without_secrets
from harness.experiments.simulated_origin import simulation_origin


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        (["system.api_key=abc123"], ["system.api_key=***"]),
        (["--api-key", "abc123", "-m"], ["--api-key", "***", "-m"]),
        (["system.extra_flags=[--api-key,abc123,--seed,1]"], ["system.extra_flags=[--api-key,***,--seed,1]"]),
        (["--token=abc123"], ["--token=***"]),
        (["system.base_url=http://me:abc123@host:1/v1"], ["system.base_url=http://***@host:1/v1"]),
        (["system.base_url='http://host:1/?sig=abc123&x=1'"], ["system.base_url='http://host:1/?***'"]),
        (["+headers={Authorization: Bearer abc123}"], ["+headers={Authorization: ***}"]),
        (["hydra.launcher.setup=['export HF_TOKEN=abc123']"], ["hydra.launcher.setup=['export HF_TOKEN=***']"]),
        (["x=sk-abc123abc123"], ["x=***"]),
    ],
)
def test_keys_on_the_command_line_are_not_kept(typed: list[str], kept: list[str]) -> None:
    assert without_secrets(typed) == kept


@pytest.mark.parametrize(
    "word",
    [
        "system.api_key_env=MY_KEY", "model.kv_tokens=369008", "system.chunk_tokens=512,1024", "experiment=smoke",
        "reference='DistServe (FCFS)'", "system.token_bound=2048", "load.seed=range(0,20)",
    ],
)  # fmt: skip
def test_settings_are_kept_as_typed(word: str) -> None:
    assert without_secrets([word]) == [word]


@pytest.mark.parametrize("url", ["http://me:abc123@h:1", "http://h:1/?token=abc123"])
def test_a_password_in_a_url_is_refused_before_it_could_be_kept(url: str) -> None:
    with outside_hydra() as make:
        job = make(["experiment=smoke", "system=external", f"system.base_url='{url}'", "device=cpu"])
        with pytest.raises(SettingsError, match=r"system\.base_url holds a name or a password"):
            read_point(job.compose({}))


def test_a_provenance_is_complete_and_holds_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    monkeypatch.setattr("sys.argv", ["/somewhere/run.py", "experiment=smoke", "system.api_key=sk-of-the-command"])
    kept = provenance({"load": {"seed": 3}}, seed=3)
    assert {"code", "command", "measured_at", "versions", "machine", "config", "seed"} == set(kept)
    assert set(kept["code"]) == {"commit", "dirty"} == set(commit())
    assert {"cpu", "cores", "system", "memory_bytes", "governor", "clock_mhz", "clock_max_mhz", "gpus"} == set(
        kept["machine"]
    )
    assert {"python", "torch", "numpy", "scipy", "aiohttp"} <= set(kept["versions"])
    text = json.dumps([kept, simulation_origin(["experiment=smoke", "system.api_key=sk-of-the-command"])])
    assert "sk-of" not in text
    assert "/somewhere" not in text
    assert not [value for value in os.environ.values() if len(value) > 40 and value in text]


def test_governor_and_clocks_are_read_and_none_where_the_machine_does_not_tell(tmp_path: Path) -> None:
    (tmp_path / "scaling_governor").write_text("performance\n")
    (tmp_path / "cpuinfo_max_freq").write_text("3500000\n")
    facts = machine_facts(clocks=tmp_path, driver=tmp_path / "none")
    assert (facts["governor"], facts["clock_max_mhz"], facts["gpus"]) == ("performance", 3500.0, [])
    assert machine_facts(clocks=tmp_path / "none", driver=tmp_path / "none")["governor"] is None


def test_gpus_with_driver_and_clocks(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    values = ["NVIDIA A100", "550.1", "81920", "1410", "1410", "1593", "400.00", "Enabled", "31"]
    smi.write_text(f"#!/bin/sh\necho '{', '.join(values)}'\n")
    smi.chmod(0o755)
    assert gpus(str(smi)) == [dict(zip(GPU_FIELDS, values, strict=True))]
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert gpus(str(smi)) is None
    assert gpus(str(tmp_path / "none")) is None

"""The rules that join settings: each case is one change to a composition that is fine."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.serving.catalogue import POLICIES
from engine.serving.settings import flags
from harness.assembly.effective import EffectiveTokens, engine_settings
from harness.assembly.point import read_point
from harness.assembly.reading import SettingsError
from harness.experiments.compose import options, outside_hydra


@pytest.fixture(scope="module")
def compositions() -> Iterator[dict[str, dict[str, Any]]]:
    with outside_hydra() as job:
        yield {name: job([f"system={name}", "device=cpu"]).config for name in options("system")}


def test_every_system_file_is_a_known_policy_and_reads(compositions: dict[str, dict[str, Any]]) -> None:
    assert len(compositions) >= 10
    for name, config in compositions.items():
        if name == "external":
            config = _changed(config, {"system.base_url": "http://127.0.0.1:1"})
        system = read_point(config).system
        assert system.name == name
        assert system.backend != "engine" or system.policy in POLICIES


@pytest.mark.parametrize(
    ("system", "change", "words"),
    [
        ("external", {}, "system=external needs system.base_url"),
        ("external", {"system.base_url": "http://h:1", "system.policy": "edf"}, "system.policy belongs to an engine"),
        ("flowprefill", {"system.base_url": "http://h:1"}, "system.base_url belongs to a server that runs already"),
        ("flowprefill", {"system.policy": "sedf"}, "system.policy must be one of s_edf"),
        ("flowprefill", {"system.alpha": None}, "system.batching=slo_aware needs system.alpha"),
        ("flowprefill", {"system.preempt": "never"}, "conflicts with system.granularity=operator"),
        ("flowprefill", {"system.granularity": "tile"}, "system.granularity=tile needs system.tile_tokens"),
        ("chunked_prefill", {"system.chunk_tokens": None}, "system.batching=chunked needs system.chunk_tokens"),
        ("chunked_prefill", {"system.chunk_tokens": 0}, "system.chunk_tokens must be at least 1"),
        ("flowprefill", {"slo.scale": 0}, "slo.scale must be a number above 0"),
        ("flowprefill", {"slo.scale": "big"}, "slo.scale must be a number above 0"),
        ("flowprefill", {"load.rate_scale": -1}, "load.rate_scale must be above 0"),
        ("flowprefill", {"load.rate_scale": 1e7}, "load.rate_scale must be at most 1e+06, got 1e+07"),
        ("flowprefill", {"load.rate_scale": 1e-300}, "load.rate_scale must be at least 1e-06, got 1e-300"),
        ("flowprefill", {"load.request_timeout_s": 1e9}, "load.request_timeout_s must be at most 1e+06"),
        ("flowprefill", {"protocol.min_arrivals_s": 1e9}, "protocol.min_arrivals_s must be at most 1e+06"),
        ("flowprefill", {"slo.scale": 1e300}, "slo.scale must be between 1e-06 and 1e+06, got 1e+300"),
        ("flowprefill", {"slo.scale": 1e-300}, "slo.scale must be between 1e-06 and 1e+06, got 1e-300"),
        ("flowprefill", {"workload.max_input": 40000}, "must be below model.max_context_tokens"),
        ("flowprefill", {"workload.path": "no/such.csv"}, "workload.path: there is no file no/such.csv"),
        ("flowprefill", {"workload.arrivals": "poisson", "workload.arrival_cv": 2}, "conflicts with arrivals=poisson"),
        (
            "flowprefill",
            {"workload.repeat_to_s": 300, "protocol.min_arrivals_s": 300},
            "workload.repeat_to_s conflicts with protocol.min_arrivals_s",
        ),
        ("flowprefill", {"protocol.give_up_slo_multiple": 0.5}, "protocol.give_up_slo_multiple must be at least 1"),
        (
            "flowprefill",
            {"protocol.discard_first_s": 60},
            "discard_first_s=60 must be below",
        ),
        (
            "flowprefill",
            {"protocol.discard_first_s": 60, "protocol.min_arrivals_s": 60},
            "discard_first_s=60 must be below protocol.min_arrivals_s (60): nothing would be counted",
        ),
        ("flowprefill", {"slo.rule": "by_length"}, "slo: slo rule=by_length goes with bins"),
    ],
)
def test_c39_conflicting_settings_are_refused_in_one_sentence(
    compositions: dict[str, dict[str, Any]], system: str, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        read_point(_changed(compositions[system], change))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_c41_a_mistyped_trace_path_is_named(compositions: dict[str, dict[str, Any]]) -> None:
    with pytest.raises(SettingsError, match=r"there is no file data/azure_cod\.csv$"):
        read_point(_changed(compositions["flowprefill"], {"workload.path": "data/azure_cod.csv"}))


@pytest.mark.parametrize(
    ("name", "words"),
    [("burstgpt_1.csv", "; make traces fetches it"), ("mine.csv", "")],
)
def test_a_public_trace_that_is_not_there_says_how_to_have_it(
    compositions: dict[str, dict[str, Any]],
    name: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError) as caught:
        read_point(_changed(compositions["flowprefill"], {"workload.path": f"data/traces/{name}"}))
    assert str(caught.value) == f"workload.path: there is no file data/traces/{name}{words}"


def test_token_counts_are_scaled_for_the_engine(compositions: dict[str, dict[str, Any]]) -> None:
    point = read_point(_changed(compositions["chunked_prefill"], {"system.chunk_tokens": 510}))
    assert EffectiveTokens.of(point) == EffectiveTokens(
        token_bound=None, chunk_tokens=128, tile_tokens=None, kv_tokens=92252, max_context_tokens=8192
    )
    settings = engine_settings(point, "profile.json", 0)
    assert (settings.chunk_tokens, settings.kv_blocks, settings.block_tokens) == (128, 5766, 16)
    assert "--policy" not in flags(settings)  # s_edf is the engine's default
    assert {"--batching", "--chunk-tokens", "--preempt", "--profile"} <= set(flags(settings))


def _changed(config: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    config = copy.deepcopy(config)
    for key, value in change.items():
        group, _, name = key.partition(".")
        config[group][name] = value
    return config

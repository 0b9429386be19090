"""Settings from flags and JSON."""

import json
import re

import pytest

from engine.serving.settings import (
    EngineSettings,
    ServerSettings,
    SettingsError,
    flags,
    from_mapping,
    parse_command_line,
    to_json,
)


def test_flags_give_settings_back() -> None:
    engine = EngineSettings(model="m", dummy_weights=True, alpha=0.25, kv_blocks=7, engine_cpu=1)
    server = ServerSettings(port=0, max_queue=3)
    assert parse_command_line([*flags(engine), *flags(server)]) == (engine, server)
    assert flags(EngineSettings()) == []


def test_json_gives_settings_back() -> None:
    engine = EngineSettings(engine_cpu=0, decision_log="x.jsonl")
    assert from_mapping(EngineSettings, json.loads(to_json(engine))) == engine


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"kv_block": 1}, "there is no setting 'kv_block'; known are model, "),
        ({"kv_blocks": "1"}, "kv_blocks must be int, got '1'"),
        ({"kv_blocks": True}, "kv_blocks must be int, got True"),
        ({"kv_blocks": None}, "kv_blocks must be int, got None"),
        ({"engine_cpu": "x"}, "engine_cpu must be int or null, got 'x'"),
        ({"alpha": 1.5}, "alpha must be between 0 and 1, got 1.5"),
        ({"alpha": float("nan")}, "alpha must be between 0 and 1, got nan"),
        ({"block_tokens": 0}, f"block_tokens must be between 1 and {2**20}, got 0"),
        ({"chunk_tokens": 0}, "chunk_tokens must be at least 1, got 0"),
        ({"weights_seed": 2**63}, f"weights_seed must be between 0 and {2**63 - 1}, got {2**63}"),
    ],
)
def test_a_wrong_setting_is_named(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        from_mapping(EngineSettings, given)


def test_a_whole_number_is_a_number() -> None:
    assert from_mapping(EngineSettings, {"alpha": 0}).alpha == 0


def test_loopback_is_the_default() -> None:
    assert ServerSettings().host == "127.0.0.1"

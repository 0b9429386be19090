"""Profile files."""

import json
import re
from pathlib import Path

import pytest

from engine.scheduling.predictors.polynomial import PrefillSample
from engine.serving.prefill_profile import read_prefill_samples
from engine.serving.settings import SettingsError


def test_samples_are_read(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    rows = [
        {"new_tokens": 16, "context_tokens": 0, "seconds": 0.5},
        {"new_tokens": 8, "context_tokens": 4, "seconds": 1},
    ]
    file.write_text(json.dumps({"model": "x", "prefill": rows, "operators": []}))
    assert read_prefill_samples(file) == [PrefillSample(16, 0, 0.5), PrefillSample(8, 4, 1.0)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("{", "not valid JSON"),
        ("[]", 'has no list "prefill"'),
        ('{"prefill": []}', 'has no list "prefill"'),
        ('{"prefill": [{"new_tokens": 1}]}', "prefill[0] needs numbers"),
        ('{"prefill": [3]}', "prefill[0] needs numbers"),
        ('{"prefill": [{"new_tokens": 0, "context_tokens": 0, "seconds": 1}]}', "prefill[0] has a length or a time"),
        ('{"prefill": [{"new_tokens": 1, "context_tokens": 0, "seconds": NaN}]}', "prefill[0] has a length or a time"),
    ],
)
def test_what_is_no_profile_is_one_sentence(tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "p.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsError, match=re.escape(words)) as caught:
        read_prefill_samples(file)
    assert str(caught.value).startswith(f"--profile {file}: ")

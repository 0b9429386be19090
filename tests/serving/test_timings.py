"""Profile files."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from engine.scheduling.predictors.operator_sum import OperatorSample
from engine.scheduling.predictors.polynomial import PrefillSample
from engine.serving.settings import SettingsError
from engine.serving.timings import Timings, read_timings

GOOD = '{"new_tokens": 1, "context_tokens": 0, "seconds": 1}'


def test_samples_are_read(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    rows = [
        {"new_tokens": 16, "context_tokens": 0, "seconds": 0.5},
        {"new_tokens": 8, "context_tokens": 4, "seconds": 1},
    ]
    operators = [{"operator": "head", "new_tokens": 16, "context_tokens": 0, "seconds": 0.1}]
    file.write_text(json.dumps({"model": "x", "prefill": rows, "operators": operators}))
    timings = read_timings(file, layers=2)
    assert timings == Timings(
        2, (PrefillSample(16, 0, 0.5), PrefillSample(8, 4, 1.0)), (OperatorSample("head", 16, 0, 0.1),)
    )
    assert Timings.from_json(json.loads(json.dumps(dataclasses.asdict(timings)))) == timings


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
        (f'{{"prefill": [{GOOD}], "operators": 3}}', '"operators" is not a list'),
        (f'{{"prefill": [{GOOD}], "operators": [{GOOD}]}}', "operators[0] names no operator"),
    ],
)
def test_what_is_no_profile_is_one_sentence(tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "p.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsError, match=re.escape(words)) as caught:
        read_timings(file, layers=2)
    assert str(caught.value).startswith(f"--profile {file}: ")

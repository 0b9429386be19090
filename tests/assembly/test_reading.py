from dataclasses import dataclass
from typing import Literal

import pytest

from harness.assembly.reading import SettingsError, bounded, read


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    ttft_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    name: str
    share: float = bounded(above=0, at_most=1)
    count: int | Literal["trace"] = 1
    kind: Literal["a", "b"] = "a"
    tasks: dict[str, Inner] | None = None
    bins: tuple[Inner, ...] = ()
    curve: tuple[float, ...] = ()
    on: bool = False

    def __post_init__(self) -> None:
        if self.kind == "b" and not self.on:
            raise ValueError("kind b needs on")


GOOD = {"name": "x", "share": 0.5}


def test_reads_nested_values_and_turns_whole_numbers_into_floats() -> None:
    read_one = read(Outer, {**GOOD, "share": 1, "tasks": {"t": {"ttft_s": 2}}, "bins": [{"ttft_s": None}]}, "outer")
    assert read_one == Outer(name="x", share=1.0, tasks={"t": Inner(ttft_s=2.0)}, bins=(Inner(ttft_s=None),))
    assert isinstance(read_one.share, float)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shar": 1}, "unknown setting outer.shar: did you mean share?"),
        ({"share": 0}, "outer.share must be above 0, got 0"),
        ({"share": 1.5}, "outer.share must be at most 1, got 1.5"),
        ({"share": float("nan")}, "outer.share must be a finite number"),
        ({"share": "much"}, "outer.share must be a number, got 'much'"),
        ({"share": True}, "outer.share must be a number, got True"),
        ({"count": 1.5}, "outer.count must be one of trace"),
        ({"kind": "c"}, "outer.kind must be one of a, b, got 'c'"),
        ({"tasks": {"t": {"ttft": 1}}}, "unknown setting outer.tasks.t.ttft"),
        ({"tasks": {"t": {"ttft_s": "x"}}}, "outer.tasks.t.ttft_s must be a number"),
        ({"curve": [1, float("nan")]}, "outer.curve[1] must be a finite number, got nan"),
        ({"bins": {"ttft_s": 1}}, "outer.bins must be a list"),
        ({"kind": "b"}, "outer: kind b needs on"),
        ({"on": 1}, "outer.on must be true or false"),
    ],
)
def test_a_mistake_is_one_sentence_naming_the_setting(change: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(Outer, {**GOOD, **change}, "outer")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_setting_without_default_is_named() -> None:
    with pytest.raises(SettingsError, match=r"outer\.share is missing"):
        read(Outer, {"name": "x"}, "outer")

"""Settings are checked once, and a body states the SLO in the style asked for."""

import pytest

from harness.loadgen.request_body import body_fields
from harness.loadgen.settings import PlayerSettings, SLOStyle, Target
from tests.loadgen.rig import plan, settings


def test_c23_deadlines_have_no_default():
    with pytest.raises(TypeError):
        PlayerSettings()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("request_timeout_s", 0),
        ("request_timeout_s", float("nan")),
        ("drain_s", -1),
        ("give_up_slo_multiple", 0),
        ("max_in_flight", 0),
        ("extra_fields", {"prompt": "x"}),
        ("progress", "loud"),
    ],
)
def test_values_out_of_range_are_refused(name: str, value: object):
    with pytest.raises(ValueError):  # noqa: PT011
        settings(**{name: value})


@pytest.mark.parametrize("base", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_base_urls_with_and_without_v1(base: str):
    assert Target(base, "m").url("completions") == "http://h:1/v1/completions"


def test_a_base_url_without_a_scheme_is_refused():
    with pytest.raises(ValueError, match="base_url"):
        Target("localhost:8000", "m")


def test_the_key_is_not_shown():
    assert "secret" not in repr(Target("http://h", "m", api_key="secret"))


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (SLOStyle.FIELDS, {"ttft_slo_s": 0.25, "task": "text"}),
        (SLOStyle.VLLM_XARGS, {"vllm_xargs": {"ttft_slo": 0.25}}),
        (SLOStyle.PRIORITY_LOW_FIRST, {"priority": 250}),
        (SLOStyle.PRIORITY_HIGH_FIRST, {"priority": -250}),
        (SLOStyle.NONE, {}),
    ],
)
def test_slo_styles(style: SLOStyle, expected: dict):
    fields = body_fields(plan(0, ttft_ms=250), Target("http://h", "m", slo_style=style), settings())
    stated = {
        name: fields[name] for name in ("ttft_slo_s", "tbt_slo_s", "task", "vllm_xargs", "priority") if name in fields
    }
    assert stated == expected


def test_a_request_without_slo_sends_no_xargs():
    assert "vllm_xargs" not in body_fields(plan(0), Target("http://h", "m", slo_style=SLOStyle.VLLM_XARGS), settings())


def test_without_an_slo_a_request_has_the_last_priority():
    for style, sign in ((SLOStyle.PRIORITY_LOW_FIRST, 1), (SLOStyle.PRIORITY_HIGH_FIRST, -1)):
        without = body_fields(plan(0), Target("http://h", "m", slo_style=style), settings())["priority"]
        late = body_fields(plan(0, ttft_ms=86_400_000), Target("http://h", "m", slo_style=style), settings())[
            "priority"
        ]
        assert sign * without > sign * late > 0

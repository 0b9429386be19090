"""Schemathesis over the OpenAPI description: requests that keep to it and requests that break it, against real servers.

Its checks: no 5xx, only statuses, media types, headers and bodies that the description names, wrong bodies refused,
405 with Allow for other methods.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks
from schemathesis.generation import GenerationMode

from engine.serving.application import OPENAPI_FILE
from tests.serving.server_process import FAKE, REAL, ServerProcess, eventually, running

SCHEMA = schemathesis.openapi.from_dict(json.loads(OPENAPI_FILE.read_text(encoding="utf-8")))
SCHEMA.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
# A model has limits the description does not know: fewer tokens, a vocabulary, a chat template.
SCHEMA.config.checks.positive_data_acceptance.expected_statuses = ["2xx", "400", "404", "503"]
# A chat without max_tokens is answered until the context is full: short, so that a busy machine answers in time, too.
CONTEXT = "48"
SERVERS = {
    "fake": (FAKE, ["--", "--plain", "--context-tokens", CONTEXT]),
    "tiny": (REAL, ["--model", "cpu_tiny", "--max-context-tokens", CONTEXT]),
}
load_all_checks()
pytestmark = pytest.mark.timeout(600)
"""Making bodies to a schema as nested as a chat's is slow: seconds on a core of one's own, minutes on a busy one."""


@SCHEMA.hook
def map_body(context: object, body: Any) -> Any:
    """Half of the bodies ask for no model, where chance would name one that is not served; tokens are the model's."""
    if not isinstance(body, dict):
        return body
    kept = {name: value for name, value in body.items() if name != "model" or len(body) % 2}
    prompt = kept.get("prompt")
    if isinstance(prompt, list) and prompt and all(type(each) is int and each >= 0 for each in prompt):
        kept["prompt"] = [each % 300 for each in prompt]
    return kept


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    kind, flags = SERVERS[request.param]
    with running(flags, kind) as started:
        yield started
        eventually(lambda: started.state()["open_requests"] == 0, "nothing is left open")
        state = started.state()
        assert state["kv_blocks_free"] == state["kv_blocks_total"]
        assert started.complete([1], max_tokens=1)[0] == 200


@SCHEMA.parametrize()
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_every_answer_keeps_to_the_description(case: schemathesis.Case, server: ServerProcess) -> None:
    case.call_and_validate(base_url=f"http://127.0.0.1:{server.port}", timeout=100)

"""The OpenAPI description: it is what is served, it names what is read and refused, and real answers keep to it."""

import dataclasses
import http.client
import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from engine.core.record import EngineReport
from engine.serving import application, request_body
from engine.serving.application import OPENAPI_FILE
from engine.serving.engine_state import LiveState
from engine.serving.request_body import REFUSED_UNLESS
from tests.serving import fake_engine
from tests.serving.server_process import ServerProcess, running

DESCRIPTION: dict[str, Any] = json.loads(OPENAPI_FILE.read_text(encoding="utf-8"))
SCHEMAS = DESCRIPTION["components"]["schemas"]
GENERATIONS = {
    "/v1/completions": {"prompt": [1]},
    "/v1/chat/completions": {"messages": [{"role": "u", "content": "x"}]},
}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running() as started:
        yield started


def check(name: str, content: object) -> None:
    """Raise jsonschema_rs.ValidationError unless the content is of the schema of that name."""
    validator = jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": DESCRIPTION["components"]}
    )
    validator.validate(content)


def reply_schema(path: str, method: str, status: int) -> dict[str, Any]:
    response = DESCRIPTION["paths"][path][method]["responses"][str(status)]
    if "$ref" in response:
        response = DESCRIPTION["components"]["responses"][response["$ref"].rpartition("/")[2]]
    return response


def check_reply(path: str, method: str, status: int, content: object) -> None:
    schema = reply_schema(path, method, status)["content"]["application/json"]["schema"]
    jsonschema_rs.Draft202012Validator({**schema, "components": DESCRIPTION["components"]}).validate(content)


def test_the_committed_file_is_what_is_served(server: ServerProcess) -> None:
    assert server.call("GET", "/openapi.json") == (200, DESCRIPTION)


def test_it_names_the_routes_there_are() -> None:
    source = inspect.getsource(application.Application.web_application)
    routes = {(path, method) for method, path in re.findall(r'web\.(get|post)\("([^"]+)"', source)}
    assert len(routes) > 8
    described = {(path, method) for path, methods in DESCRIPTION["paths"].items() for method in methods}
    assert described == {(re.sub(r":[^}]*}", "}", path), method) for path, method in routes}


@pytest.mark.parametrize("name", ["CompletionRequest", "ChatRequest"])
def test_it_names_the_fields_that_are_read_and_those_that_are_refused(name: str) -> None:
    properties = SCHEMAS[name]["properties"]
    for field, accepted in REFUSED_UNLESS.items():
        assert properties[field]["enum"] == [*accepted, None]
    read = set(re.findall(r'fields\.\w+\(\s*"(\w+)"', inspect.getsource(request_body)))
    assert {"ignore_eos", "seed", "task", "stream"} <= read
    of_the_other = {"CompletionRequest": {"messages", "max_completion_tokens"}, "ChatRequest": {"prompt"}}[name]
    assert read - of_the_other <= set(properties)
    assert not of_the_other & set(properties)


def test_state_and_report_have_the_fields_they_are_made_of() -> None:
    live = {each.name for each in dataclasses.fields(LiveState)}
    assert set(SCHEMAS["State"]["properties"]) == live | {"open_requests"}
    assert set(SCHEMAS["Report"]["properties"]) == {each.name for each in dataclasses.fields(EngineReport)}


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", p) for p in ("/v1/models", "/health", "/report", "/state", "/openapi.json")] + [("POST", "/report/reset")],
)
def test_what_the_server_says_of_itself_keeps_to_it(server: ServerProcess, method: str, path: str) -> None:
    status, content = server.call(method, path)
    check_reply(path, method.lower(), status, content)


@pytest.mark.parametrize("path", GENERATIONS)
def test_answers_whole_and_streamed_keep_to_it(server: ServerProcess, path: str) -> None:
    body: dict[str, Any] = {**GENERATIONS[path], "max_tokens": 3}
    status, whole = server.call("POST", path, body)
    assert status == 200
    check_reply(path, "post", 200, whole)
    chunk = "CompletionChunk" if path == "/v1/completions" else "ChatCompletionChunk"
    for options in ({}, {"stream_options": {"include_usage": True}}):
        *chunks, done = server.stream(path, {**body, **options})
        assert done == "[DONE]"
        for each in chunks:
            check(chunk, each)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        ({"prompt": [1], "model": "other"}, 404),
        (b"x" * 2_000_001, 413),
        ({"prompt": [fake_engine.FAIL_AFTER_ONE], "max_tokens": 2}, 500),
        ({"prompt": [fake_engine.REJECT]}, 503),
    ],
)
def test_refusals_keep_to_it(server: ServerProcess, body: object, status: int) -> None:
    got, content = server.call("POST", "/v1/completions", body)
    assert got == status
    check_reply("/v1/completions", "post", status, content)


def test_an_error_inside_a_stream_keeps_to_it(server: ServerProcess) -> None:
    _, error, _ = server.stream("/v1/completions", {"prompt": [fake_engine.FAIL_AFTER_ONE], "max_tokens": 2})
    check("Error", error)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "cmpl-1"},
        {"choices": []},
        {"usage": {"prompt_tokens": 1}},
        {"more": 1},
    ],
)
def test_the_schema_of_an_answer_can_refuse(server: ServerProcess, wrong: dict[str, object]) -> None:
    _, whole = server.complete([1], max_tokens=1)
    check("Completion", whole)
    with pytest.raises(jsonschema_rs.ValidationError):
        check("Completion", {**whole, **wrong})


def test_the_headers_it_names_come_with_a_refusal(server: ServerProcess) -> None:
    assert "Retry-After" in reply_schema("/v1/completions", "post", 503)["headers"]
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": [fake_engine.REJECT]}))
    response = connection.getresponse()
    assert (response.status, response.getheader("Retry-After")) == (503, "1")
    connection.close()

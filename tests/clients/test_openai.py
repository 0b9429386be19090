"""The `openai` package against our server: completions, chat, streams, errors. python -m pytest -m servers"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.torch_backend.checkpoint_folder import write_checkpoint
from tests.clients.other_environments import ROOT, interpreter, output_of
from tests.serving.server_process import REAL, running

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]
CALLS = Path(__file__).with_name("openai_calls.py")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    python = interpreter("openai", ".venv-sglang", ".venv-vllm")
    folder = tmp_path_factory.mktemp("openai") / "tiny"
    write_checkpoint("cpu_tiny", folder)
    with running(["--model", str(folder), "--max-context-tokens", "1024"], REAL) as server:
        said = output_of([python, str(CALLS), f"http://127.0.0.1:{server.port}", str(folder)], ROOT, 240)
        yield {**json.loads(said), "folder": str(folder)}


def test_models_are_listed_and_found(seen: dict[str, Any]) -> None:
    assert seen["models"] == [seen["folder"]] == [seen["model"]]


def test_completions_of_token_ids_and_texts(seen: dict[str, Any]) -> None:
    ids = seen["ids"]
    assert (ids["finish"], ids["model"]) == ("length", seen["folder"])
    assert ids["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert seen["text"]["usage"]["completion_tokens"] == 4
    assert seen["with_slo"]["text"] == seen["text"]["text"]


def test_a_stream_says_the_same_as_the_whole_reply(seen: dict[str, Any]) -> None:
    for whole, stream in (("ids", "ids_stream"), ("chat", "chat_stream")):
        assert "".join(seen[stream]["texts"]) == seen[whole]["text"]
        assert (seen[stream]["finish"], seen[stream]["usage"]) == (seen[whole]["finish"], seen[whole]["usage"])


def test_chat_takes_text_parts(seen: dict[str, Any]) -> None:
    assert seen["chat_parts"]["text"] == seen["chat"]["text"]


@pytest.mark.parametrize(
    ("call", "kind", "status", "param", "words"),
    [
        ("no_model", "NotFoundError", 404, "model", "'another' is not served here"),
        ("no_such_model", "NotFoundError", 404, "model", "'another' is not served here"),
        ("too_long", "BadRequestError", 400, "max_tokens", "between 1 and 1024"),
        ("two_prompts", "BadRequestError", 400, "prompt", "one prompt per request"),
        ("no_messages", "BadRequestError", 400, "messages", "at least one message"),
        ("stop", "BadRequestError", 400, "stop", "not supported"),
        ("error_before_a_stream", "BadRequestError", 400, "prompt", "token id 1000000"),
        ("embeddings", "NotFoundError", 404, None, "/v1/embeddings"),
    ],
)
def test_errors_are_the_packages_own(
    seen: dict[str, Any], call: str, kind: str, status: int, param: str | None, words: str
) -> None:
    assert seen[call][:3] == [kind, status, param]
    assert words in seen[call][3]

"""Calls of the `openai` package against a server, in an environment that has it. Arguments: base URL, model.

Prints one JSON object: what each call gave, an error as [its class, status, the error object's param, message].
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import openai

HI = [{"role": "user", "content": "hi"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]


def attempt(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.param, error.message]


def completion(given: Any) -> dict[str, Any]:
    (choice,) = given.choices
    text = choice.text if hasattr(choice, "text") else choice.message.content
    return {"text": text, "finish": choice.finish_reason, "usage": given.usage.to_dict(), "model": given.model}


def stream(chunks: Any) -> dict[str, Any]:
    """Texts, finish reason and usage of a stream; the last chunk must have no choices."""
    chunks = list(chunks)
    choices = [chunk.choices[0] for chunk in chunks[:-1]]
    assert chunks[-1].choices == []
    texts = [choice.text if hasattr(choice, "text") else choice.delta.content for choice in choices]
    finishes = [choice.finish_reason for choice in choices]
    assert all(finish is None for finish in finishes[:-1])
    return {"texts": texts, "finish": finishes[-1], "usage": chunks[-1].usage.to_dict()}


def main(base_url: str, model: str) -> None:
    client = openai.OpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0, timeout=60)
    text, chat = client.completions.create, client.chat.completions.create
    same: dict[str, Any] = {"model": model, "temperature": 0, "max_tokens": 4, "extra_body": {"ignore_eos": True}}
    streamed: dict[str, Any] = {**same, "stream": True, "stream_options": {"include_usage": True}}
    found = {
        "version": openai.__version__,
        "models": [entry.id for entry in client.models.list()],
        "model": client.models.retrieve(model).id,
        "ids": completion(text(prompt=[20, 21, 22], **same)),
        "ids_stream": stream(text(prompt=[20, 21, 22], **streamed)),
        "text": completion(text(prompt="hello there", **same)),
        "with_slo": completion(text(prompt="hello there", **{**same, "extra_body": {"ttft_slo_s": 9, "task": "text"}})),
        "chat": completion(chat(messages=HI, **same)),
        "chat_parts": completion(chat(messages=PARTS, **same)),
        "chat_stream": stream(chat(messages=HI, **streamed)),
        "no_model": attempt(lambda: text(prompt="x", **{**same, "model": "another"})),
        "no_such_model": attempt(lambda: client.models.retrieve("another")),
        "too_long": attempt(lambda: text(prompt="x", **{**same, "max_tokens": 10**6})),
        "two_prompts": attempt(lambda: text(prompt=["x", "y"], **same)),
        "no_messages": attempt(lambda: chat(messages=[], **same)),
        "stop": attempt(lambda: text(prompt="x", stop=["y"], **same)),
        "error_before_a_stream": attempt(lambda: text(prompt=[10**6], **streamed)),
        "embeddings": attempt(lambda: client.embeddings.create(model=model, input="x")),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""JSON of replies: whole completions, chunks of a stream, usage."""

import json
from collections.abc import Sequence
from typing import Any

from engine.serving.generation import ReplyOptions

DONE = b"data: [DONE]\n\n"


class ReplyWriter:
    """Makes the objects of one reply.

    Every chunk bears the id of its token beside the text: a token may have no text of its own (part
    of a character), and a client must still see that it came.
    """

    def __init__(self, request_id: str, model: str, created: int, prompt_tokens: int, options: ReplyOptions) -> None:
        self._options = options
        self._prompt_tokens = prompt_tokens
        kind = ("chat.completion.chunk" if options.stream else "chat.completion") if options.chat else "text_completion"
        self._head = {"id": request_id, "object": kind, "created": created, "model": model}

    def chunk(self, text: str, token_id: int, first: bool, finish_reason: str | None) -> bytes:
        """One token of a stream, as a server-sent event."""
        choice: dict[str, Any] = {"index": 0}
        if self._options.chat:
            choice["delta"] = {"role": "assistant", "content": text} if first else {"content": text}
        else:
            choice["text"] = text
        choice.update(logprobs=None, finish_reason=finish_reason, token_ids=[token_id])
        return sse(self._object(choices=[choice], **({"usage": None} if self._options.include_usage else {})))

    def usage_chunk(self, output_tokens: int) -> bytes:
        """The last chunk of a stream that asked for usage: no choices."""
        return sse(self._object(choices=[], usage=self._usage(output_tokens)))

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str) -> dict[str, Any]:
        """The reply of a request that did not ask for a stream."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish_reason}
        choice["token_ids"] = list(token_ids)
        if self._options.chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        return self._object(choices=[choice], usage=self._usage(len(token_ids)))

    def _object(self, **rest: Any) -> dict[str, Any]:
        return {**self._head, **rest}

    def _usage(self, output_tokens: int) -> dict[str, int]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": self._prompt_tokens + output_tokens,
        }


def sse(content: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"

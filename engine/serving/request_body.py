"""Bodies of /v1/completions and /v1/chat/completions: what is read, what is refused, what is ignored.

Read: model, prompt or messages, max_tokens (chat: also max_completion_tokens), stream,
stream_options.include_usage, temperature, seed, ignore_eos, n, and the SLO: ttft_slo_s, tbt_slo_s and
task, or vllm_xargs.ttft_slo and vllm_xargs.tbt_slo. Refused, since to ignore them would change the
answer unsaid: the fields of `REFUSED_UNLESS` with another value than the one given there. Any other
field is ignored, as OpenAI-compatible servers do.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.core.clock import seconds_to_ns
from engine.core.slo import SLO
from engine.serving.api_error import ApiError, bad_request
from engine.serving.body_fields import Fields, read_object
from engine.serving.generation import Generation, ReplyOptions, Sampling
from engine.serving.text import ChatTemplate, Tokenizer

SHORTEST_SLO_S, LONGEST_SLO_S = 1e-6, 1e6
LONGEST_TASK = 64
REFUSED_UNLESS: Final[dict[str, tuple[Any, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "min_tokens": (0,),
    "stop": ([], ""),
    "stop_token_ids": ([],),
    "use_beam_search": (False,),
    "prompt_embeds": (),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "audio": (),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What the served model and engine allow. models: names the model answers to."""

    models: tuple[str, ...]
    vocab_size: int
    max_context_tokens: int


@dataclass(frozen=True, slots=True)
class BodyReader:
    """Turns bodies into generations. Raises ApiError for what is wrong with them."""

    limits: Limits
    tokenizer: Tokenizer
    template: ChatTemplate

    def completion(self, body: bytes, arrived_at_ns: int) -> tuple[Generation, ReplyOptions]:
        """A body of /v1/completions."""
        fields = self._fields(body)
        token_ids = self._prompt(fields)
        max_tokens = fields.integer("max_tokens", 1, self.limits.max_context_tokens)
        return self._generation(fields, token_ids, max_tokens or 16, "cmpl", arrived_at_ns), _options(
            fields, chat=False
        )

    def chat(self, body: bytes, arrived_at_ns: int) -> tuple[Generation, ReplyOptions]:
        """A body of /v1/chat/completions. Without a limit the answer may fill the context."""
        fields = self._fields(body)
        token_ids = self._encode("messages", _rendered(self.template, fields), special_tokens=False)
        given = [
            fields.integer(name, 1, self.limits.max_context_tokens) for name in ("max_tokens", "max_completion_tokens")
        ]
        room = max(1, self.limits.max_context_tokens - len(token_ids))
        max_tokens = given[1] or given[0] or room
        return self._generation(fields, token_ids, max_tokens, "chatcmpl", arrived_at_ns), _options(fields, chat=True)

    def _fields(self, body: bytes) -> Fields:
        fields = Fields(read_object(body))
        model = fields.text("model", 4096)
        if model is not None and model not in self.limits.models:
            raise ApiError(404, f"model {model!r} is not served here; {self.limits.models[0]!r} is", "model")
        for name, accepted in REFUSED_UNLESS.items():
            value = fields.get(name)
            if value is not None and not any(_same(value, each) for each in accepted):
                hint = f"only {accepted[0]!r}".replace("'", '"').replace("False", "false") if accepted else "nothing"
                raise bad_request(name, f"is not supported by this server ({hint} is accepted)")
        return fields

    def _prompt(self, fields: Fields) -> list[int]:
        prompt = fields.get("prompt")
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], list | str):
            if len(prompt) > 1:
                raise bad_request("prompt", f"must be one prompt per request, got a list of {len(prompt)}")
            prompt = prompt[0]
        if isinstance(prompt, str):
            return self._encode("prompt", prompt, special_tokens=True)
        if not isinstance(prompt, list):
            raise bad_request("prompt", "must be a text or a list of token ids")
        if not set(map(type, prompt)) <= {int}:
            raise bad_request("prompt", "must be a text or a list of token ids (whole numbers)")
        if prompt and not (min(prompt) >= 0 and max(prompt) < self.limits.vocab_size):
            wrong = next(t for t in prompt if not 0 <= t < self.limits.vocab_size)
            raise bad_request("prompt", f"has token id {wrong}, the model's go from 0 to {self.limits.vocab_size - 1}")
        return prompt

    def _encode(self, field: str, text: str, special_tokens: bool) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise bad_request(field, "is not valid Unicode text (it has a lone surrogate)") from error
        # A text has one token per 64 characters at the least: far longer ones are not worth encoding.
        if len(text) > 64 * self.limits.max_context_tokens:
            raise bad_request(field, f"is too long: {len(text)} characters")
        token_ids = self.tokenizer.encode(text, special_tokens) if text else []
        if token_ids and max(token_ids) >= self.limits.vocab_size:
            raise bad_request(field, f"has a token {max(token_ids)} that the model does not know; send token ids")
        return token_ids

    def _generation(
        self, fields: Fields, token_ids: Sequence[int], max_tokens: int, kind: str, arrived_at_ns: int
    ) -> Generation:
        field = "prompt" if kind == "cmpl" else "messages"
        if not token_ids:
            raise bad_request(field, "is empty: at least one token is needed")
        if len(token_ids) + max_tokens > self.limits.max_context_tokens:
            raise bad_request(
                field,
                f"is too long: {len(token_ids)} tokens and {max_tokens} to generate "
                f"are over the limit of {self.limits.max_context_tokens}",
            )
        temperature = fields.number("temperature", 0.0, 2.0)
        return Generation(
            request_id=f"{kind}-{uuid.uuid4().hex}",
            arrived_at_ns=arrived_at_ns,
            token_ids=tuple(token_ids),
            max_tokens=max_tokens,
            ignore_eos=fields.boolean("ignore_eos"),
            sampling=Sampling(
                temperature=1.0 if temperature is None else temperature,
                seed=fields.integer("seed", -(2**63), 2**63 - 1),
            ),
            slo=SLO(_objective_ns(fields, "ttft"), _objective_ns(fields, "tbt")),
            task=fields.text("task", LONGEST_TASK) or "",
        )


def _objective_ns(fields: Fields, kind: str) -> int | None:
    given = {
        part.name(name): part.number(name, SHORTEST_SLO_S, LONGEST_SLO_S)
        for part, name in ((fields, f"{kind}_slo_s"), (fields.object("vllm_xargs"), f"{kind}_slo"))
    }
    stated = {name: seconds for name, seconds in given.items() if seconds is not None}
    if len(set(stated.values())) > 1:
        raise bad_request(" and ".join(stated), "contradict each other")
    return seconds_to_ns(next(iter(stated.values()))) if stated else None


def _options(fields: Fields, chat: bool) -> ReplyOptions:
    stream = fields.boolean("stream")
    if fields.get("stream_options") is not None and not stream:
        raise bad_request("stream_options", "is only allowed with stream: true")
    return ReplyOptions(chat, stream, fields.object("stream_options").boolean("include_usage"))


def _rendered(template: ChatTemplate, fields: Fields) -> str:
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages", "must be a list of at least one message")
    plain = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise bad_request(f"messages[{index}]", "must be an object with a role and a content")
        part = Fields(message, f"messages[{index}].")
        role = part.text("role", 64)
        if not role:
            raise bad_request(part.name("role"), "is missing")
        plain.append({"role": role, "content": _content(part)})
    try:
        return template.render(plain)
    except ValueError as error:
        raise bad_request("messages", f"do not suit the model's chat template ({error})") from error


def _content(message: Fields) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    name = message.name("content")
    if not isinstance(content, list):
        raise bad_request(name, "must be a text or a list of text parts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise bad_request(name, "must be a text or a list of text parts")
        texts.append(part["text"])
    return "".join(texts)


def _same(given: object, accepted: object) -> bool:
    # true equals 1 in Python, not in JSON.
    return given == accepted and isinstance(given, bool) == isinstance(accepted, bool)

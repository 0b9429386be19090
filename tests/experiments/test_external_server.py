"""A server that runs already: what a user's mistakes with it are told as, each at once and with the setting to mend."""

import asyncio
import json
import socket
from collections.abc import Callable

import pytest

from harness.assembly.reading import SettingsError
from harness.assembly.settings import SystemSettings
from harness.experiments.external_server import external_target, require_token
from harness.loadgen.errors import ServerRefusesError
from harness.loadgen.settings import SLOStyle, Target
from tests.fakes.golden_script import MODEL, Respond, Script, Seen, Step, after, always, event, refused, token
from tests.fakes.golden_server import GoldenServer

NO_COMPLETIONS = always(refused(404, "nothing"))
"""The fake lists its model all the same."""


def system(**changes: str | None) -> SystemSettings:
    given = {"name": "external", "series": "x", "backend": "server", "base_url": "http://127.0.0.1:1", **changes}
    return SystemSettings(**given)  # type: ignore[arg-type]


def whole(content_type: str, body: bytes) -> Script:
    return Script((Step(0.0, body),), content_type=content_type)


def told(respond: Respond, change: Callable[[str], str] = str, model: str = MODEL, key: str | None = None) -> str:
    """The sentence. change: of the address."""

    async def ask() -> None:
        async with GoldenServer(respond) as server:
            await require_token(Target(change(server.base_url), model, key))

    with pytest.raises(SettingsError) as raised:
        asyncio.run(ask())
    assert isinstance(raised.value.__cause__, ServerRefusesError), "told at once, not after tries for a while"
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_one_token_is_enough() -> None:
    async def ask() -> list[Seen]:
        async with GoldenServer(after(0.0)) as server:
            await require_token(Target(server.base_url, MODEL))
            return server.seen

    (seen,) = asyncio.run(ask())
    assert (seen.json["max_tokens"], seen.json["ttft_slo_s"]) == (1, 60), "stated, since a server may refuse the field"


def test_usage_is_not_asked_of_it() -> None:
    def without_usage(seen: Seen) -> Script:
        return Script((Step(0.0, event(token(finish="length")) + b"data: [DONE]\n\n"),))

    async def ask() -> None:
        async with GoldenServer(without_usage) as server:
            await require_token(Target(server.base_url, MODEL))

    asyncio.run(ask())


def test_a_server_that_says_it_is_busy_is_asked_again() -> None:
    answers = iter([refused(503, "loading")])

    async def ask() -> int:
        async with GoldenServer(lambda seen: next(answers, None) or after(0.0)(seen)) as server:
            await require_token(Target(server.base_url, MODEL))
            return len(server.seen)

    assert asyncio.run(ask()) == 2


def test_an_address_nobody_listens_at() -> None:
    assert told(after(0.0), lambda _: "http://127.0.0.1:9").startswith(
        "system.base_url: http://127.0.0.1:9 gave no token"
    )


def test_a_name_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:  # a resolver without a network would think for long
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "no-such-host.invalid" in told(after(0.0), lambda _: "http://no-such-host.invalid")


def test_https_where_http_is_spoken() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def ask() -> None:
        async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await require_token(Target(f"https://127.0.0.1:{port}", MODEL))

    with pytest.raises(SettingsError, match=r"^system\.base_url: https://.* gave no token: .*SSL"):
        asyncio.run(ask())


def test_an_address_without_a_scheme() -> None:
    with pytest.raises(
        SettingsError, match=r"system.base_url: .*must start with http:// or https://, got 'localhost:1'"
    ):
        external_target(system(base_url="localhost:1"), MODEL)


@pytest.mark.parametrize(
    "address",
    [
        "http://",
        "http://[::1",
        "http://127.0.0.1:99999",
        "http://h:port",
        "http://h?a=1",
        "http://h#a",
        f"http://{'a' * 99}",
    ],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(SettingsError, match=r"^system\.base_url: target base_url .*http://"):
        external_target(system(base_url=address), MODEL)


def test_a_web_page() -> None:
    said = told(lambda _: whole("text/html", b"<html>welcome</html>"))
    assert said.startswith("system.base_url: ")
    assert "not a stream" in said


@pytest.mark.parametrize("status", [301, 308])
def test_a_redirect(status: int) -> None:
    assert f"HTTP {status}" in told(lambda _: Script(status=status, headers={"Location": "http://elsewhere/"}))


def test_a_folder_of_the_address_that_is_no_api() -> None:
    said = told(NO_COMPLETIONS, lambda url: f"{url}/folder")
    assert said.endswith("/folder has no list of models, and for 'golden' gave HTTP 404: nothing")


def test_a_name_it_does_not_serve_is_told_with_those_it_serves() -> None:
    said = told(NO_COMPLETIONS, model="mine")
    assert said.startswith("system.served_model: http://127.0.0.1:")
    assert said.endswith(f"serves {MODEL!r}, not 'mine'")


def test_a_server_that_answers_in_another_name() -> None:
    assert told(after(0.0), model="mine").endswith(f"serves model {MODEL!r}; asked for 'mine'")


def test_a_server_of_chats_alone() -> None:
    assert "a server of chats alone cannot be measured" in told(NO_COMPLETIONS)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("key", "mistake"), [(None, "give the variable that holds its key"), ("k", "it refuses the key")]
)
def test_a_key_that_is_missing_or_wrong(status: int, key: str | None, mistake: str) -> None:
    said = told(lambda _: refused(status, "no"), key=key)
    assert said.startswith(f"system.api_key_env: {mistake} (http://127.0.0.1:")
    assert said.endswith(f"HTTP {status}: no)")


def test_a_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(SettingsError, match=r"system.api_key_env names NO_SUCH_KEY, which is not set"):
        external_target(system(api_key_env="NO_SUCH_KEY"), MODEL)
    monkeypatch.setenv("NO_SUCH_KEY", "sesame")
    target = external_target(system(api_key_env="NO_SUCH_KEY", slo_fields="none"), MODEL)
    assert (target.api_key, target.model, target.slo_style) == ("sesame", MODEL, SLOStyle.NONE)


def test_fields_it_does_not_know() -> None:
    def strict(seen: Seen) -> Script:
        return refused(400, "unknown field ttft_slo_s") if "ttft_slo_s" in seen.json else after(0.0)(seen)

    assert told(strict).endswith(
        "HTTP 400: unknown field ttft_slo_s; if it is the SLO it does not take: system.slo_fields=none"
    )


def test_prompts_of_ids_it_does_not_take() -> None:
    async def ask() -> None:
        async with GoldenServer(lambda _: refused(400, "prompt must be a string")) as server:
            await require_token(Target(server.base_url, MODEL, slo_style=SLOStyle.NONE))

    with pytest.raises(SettingsError, match=r"gave no token: HTTP 400: prompt must be a string$"):
        asyncio.run(ask())


def test_an_answer_that_is_whole() -> None:
    body = json.dumps({"model": MODEL, "choices": [{"index": 0, "text": "a", "finish_reason": "length"}]}).encode()
    assert "the answer is not a stream" in told(lambda _: whole("application/json", body))


def test_a_server_that_is_broken() -> None:
    assert told(lambda _: refused(500, "out of memory")).endswith("gave no token: HTTP 500: out of memory")

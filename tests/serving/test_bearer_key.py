"""The optional key: who must send it, and that it shows nowhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.server_process import FAKE, ServerProcess, run, running

KEY = "s3cret-of-the-lab"
VARIABLE = "FLOWPREFILL_TEST_KEY"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, KEY)
        with running(["--api-key-env", VARIABLE]) as started:
            yield started


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        KEY,
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Basic {KEY}",
        "Bearer \u00fc\u00ff",
    ],
)
def test_who_does_not_send_it_is_refused(server: ServerProcess, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    for method, path in (
        ("POST", "/v1/completions"),
        ("GET", "/v1/models"),
        ("GET", "/state"),
        ("POST", "/report/reset"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("GET", "/nowhere"),
    ):
        status, body = server.call(method, path, b'{"prompt": [1]}' if method == "POST" else None, headers=headers)
        assert status == 401, path
        assert body["error"]["type"] == "invalid_request_error"
        assert KEY not in str(body)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_who_sends_it_is_served(server: ServerProcess, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {KEY}"}
    assert server.call("POST", "/v1/completions", {"prompt": [1]}, headers=headers)[0] == 200
    assert server.call("GET", "/v1/models", headers=headers)[0] == 200


def test_health_asks_for_no_key(server: ServerProcess) -> None:
    assert server.call("GET", "/health") == (200, {"status": "ok"})


def test_no_process_shows_it(server: ServerProcess) -> None:
    for pid in (server.process.pid, server.child_pid()):
        assert KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert KEY.encode() not in Path(f"/proc/{server.child_pid()}/environ").read_bytes()


def test_it_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    status, output = run([*FAKE, "--port", "0", "--api-key-env", VARIABLE, "--", "--refuse", "no engine today"])
    assert (status, output) == (2, "server: no engine today\n")


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_variable_without_a_key_is_one_sentence(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    status, output = run([*FAKE, "--port", "0", "--api-key-env", VARIABLE])
    assert (status, output) == (2, f"server: --api-key-env names {VARIABLE}, which is not set\n")


@pytest.mark.parametrize(("host", "told"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_a_server_that_is_open_to_everyone_says_so(host: str, told: bool) -> None:
    _, output = run([*FAKE, "--port", "0", "--host", host, "--", "--refuse", "no engine today"])
    assert (f"anyone who reaches {host} can use this server: --api-key-env is not set" in output) == told

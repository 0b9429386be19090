"""The decision logs of a prefill and of a decode instance replay like any other."""

from pathlib import Path

from tests.serving.proxy_process import REAL_PROXY, running_proxy
from tests.serving.server_process import run


def test_both_logs_replay(tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir()
    log = tmp_path / "decisions"
    flags = ["--model", "cpu_tiny", "--device", "cpu", "--kv-blocks", "100", "--decision-log", str(log)]
    with running_proxy(tmp_path / "kv", flags, REAL_PROXY) as proxy:
        streams = [proxy.begin(7 + i, max_tokens=6, prompt_tokens=300) for i in range(6)]
        leaving = proxy.begin(20, max_tokens=500, prompt_tokens=100)
        for _ in range(3):  # so that the decode instance has it
            leaving.event()
        leaving.leave()
        for stream in streams:
            assert len(stream.rest()) == 7
        proxy.check_nothing_left()
    for name, event in (("prefill-0", "SendAsked"), ("decode-0", "Cancelled")):
        written = log.with_name(f"{log.name}.{name}")
        assert event in written.read_text()
        status, output = run(["-m", "engine.serving.replay", str(written)])
        assert status == 0, output

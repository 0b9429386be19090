"""README, "Compare your own server": its commands as printed, against a fake server; and the example of llama.cpp."""

import asyncio
import csv
import re
import shlex
from pathlib import Path

import pytest

from tests.end_to_end.command import ROOT, run
from tests.fakes.golden_script import MODEL, capacity
from tests.fakes.golden_server import GoldenServer

ALONE = ("device.pin=off", "output.share_machine=true")


def commands() -> list[list[str]]:
    """The printed commands after `make env`, as words after the interpreter."""
    section = (ROOT / "README.md").read_text().partition("### Compare your own server")[2]
    make, *rest = section.split("```")[1].strip().splitlines()
    assert make == "make env"
    words = [shlex.split(line) for line in rest]
    assert all(line[:2] == [".venv/bin/python", "-m"] for line in words)
    return [line[2:] for line in words]


def test_three_commands_give_max_goodput_worst_class_and_a_figure(tmp_path: Path) -> None:
    """A server of 50 requests/s is never hurried by two, nor by four."""
    lengths = [320 if i % 2 else 3000 for i in range(8)]
    rows = "".join(f"{0.5 * i},{tokens},1\n" for i, tokens in enumerate(lengths))
    (tmp_path / "my.csv").write_text(f"arrival_s,input_tokens,output_tokens\n{rows}")
    (module, *settings), (draw, *drawn) = commands()

    async def whole() -> tuple[int, str, str]:
        async with GoldenServer(capacity(50)) as server:
            words = [word.replace("http://127.0.0.1:8000", server.base_url).replace("NAME", MODEL) for word in settings]
            return await asyncio.to_thread(run, tmp_path, *words, *ALONE, "search.budget=2", module=module)

    status, _, told = asyncio.run(whole())
    assert status == 0, told
    if "since none of its 2 points is VALID" in told:
        pytest.skip("this machine is too busy to measure anything: every point is CLIENT-BOUND")
    number = r"rate_scale [\d.]+ = [\d.]+ requests/s"
    said = rf"^External server: max goodput .*{number}; worst class \w+ \(.*\): .*{number}$"
    assert re.search(said, told, re.MULTILINE), told
    assert "8 due at " in told
    status, out, told = run(tmp_path, *drawn, module=draw)
    assert status == 0, told
    assert "attainment_vs_rate.png" in out + told
    assert (tmp_path / "outputs" / "mine" / "figures" / "attainment_vs_rate.png").stat().st_size > 10_000


def test_llama_cpp_is_a_server_like_any_other(tmp_path: Path) -> None:
    async def whole() -> tuple[tuple[int, str, str], list[dict[str, object]]]:
        async with GoldenServer(capacity(50)) as server:
            given = ("system=llama_cpp", f"system.base_url={server.base_url}", f"system.served_model={MODEL}")
            window = ("workload.window_s=4", "load.rate_scale=2", "experiment=smoke", "model=as_served")
            done = await asyncio.to_thread(run, tmp_path, *given, *window, *ALONE)
            return done, [seen.json for seen in server.seen]

    (status, _, told), bodies = asyncio.run(whole())
    assert status == 0, told
    with (tmp_path / "results" / "tables" / "smoke.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["series"], row["backend"], row["requests_ok"]) == ("llama.cpp", "server", row["requests_due"])
    # It knows no SLOs, and is told of none.
    assert not any({"ttft_slo_s", "priority", "vllm_xargs"} & set(body) for body in bodies)

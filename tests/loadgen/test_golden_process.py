"""The golden server as its own process, as the bench and other tests start it."""

import subprocess
import sys

import pytest

from engine.core.record import Status
from harness.loadgen.player import play
from tests.loadgen.rig import plans, run, settings, target


@pytest.mark.parametrize(("mode", "ok"), [("noop", 4), ("reject-half", 2)])
def test_a_golden_server_of_its_own_process(mode: str, ok: int):
    command = [sys.executable, "-m", "tests.fakes.golden_server", "--mode", mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            base_url = process.stdout.readline().removeprefix("listening on ").strip()
            result = run(play(plans(4, gap_ms=5), target(base_url), settings()))
        finally:
            process.terminate()
    assert [record.status for record in result.records].count(Status.OK) == ok

"""Proves the engine on a GPU with one command, in under eight minutes: python -m bench.gpu_check --out DIR

No Hydra, no network, no checkpoint: weights are random and made on the device. Every part is run, whatever fails; the
table comes last, everything else lies below --out. Exit status 1 when something that must hold does not.
--tiny runs the same parts at tiny shapes on a CPU, where no speed is judged.
"""

import argparse
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command

LOG = logging.getLogger("gpu-check")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = OneSentenceParser(
        prog="python -m bench.gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes on a CPU")
    parser.add_argument("--limit-s", type=float, default=480.0, help="end after so many seconds, whatever is left")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    LOG.setLevel(logging.INFO)

    import torch

    if not given.tiny and not torch.cuda.is_available():
        print("gpu_check: torch finds no CUDA device here; --tiny runs the same parts on a CPU", file=sys.stderr)
        return MISTAKE_STATUS
    try:
        given.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"gpu_check: --out {given.out}: {error.strerror}", file=sys.stderr)
        return MISTAKE_STATUS
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        return _check(given.out, Path(scratch), given.tiny, given.limit_s)


def _check(out: Path, scratch: Path, tiny: bool, limit_s: float) -> int:
    import torch

    from bench.gpu_check.parts import parts_of
    from bench.gpu_check.report import Report
    from bench.gpu_check.scale import GPU, TINY, Setting
    from harness.experiments.provenance import provenance

    if tiny:
        torch.set_num_threads(1)
    scale = TINY if tiny else GPU
    report = Report(scale.judge_speed)
    facts = provenance({"tiny": tiny}, device=_device_name(scale.device))
    durations: dict[str, float] = {}

    def write() -> None:
        report.write(out, {**facts, "seconds": durations})

    def give_up() -> None:
        report.must("ended in time", False, f"<= {limit_s:g} s")
        write()
        print(report.text(), flush=True)
        os._exit(1)  # the part that hangs would keep the process

    timer = threading.Timer(limit_s, give_up)
    timer.daemon = True
    timer.start()
    for name, part in parts_of(Setting(scale, out, scratch, time.monotonic() + limit_s)):
        report.part = name
        durations[name] = _run(name, part, report)
        write()
    timer.cancel()
    print(report.text())
    print(f"\n{sum(durations.values()):.0f} s; all results in {out}")
    for name in report.missed:
        print(f"missed: {name}")
    return 1 if report.missed else 0


def _run(name: str, part: "Callable[[Any], None]", report: Any) -> float:
    """Seconds it took. Whatever goes wrong in a part is its failure, and the others go on."""
    import torch

    LOG.info("%s ...", name)
    started_s, cpu_s = time.monotonic(), time.process_time()
    try:
        with torch.inference_mode():
            part(report)
    except Exception as error:
        # Shown in the table, and in full in the log.
        LOG.exception("%s failed", name)
        first_line = str(error).partition("\n")[0]
        report.must(f"failed: {type(error).__name__}: {first_line}", False, "no failure")
    took_s = time.monotonic() - started_s
    LOG.info("%s: %.1f s (%.1f s of this process's CPU)", name, took_s, time.process_time() - cpu_s)
    return took_s


def _device_name(device: str) -> str:
    import torch

    from harness.experiments.machine import cpu_model

    return torch.cuda.get_device_name() if device == "cuda" else cpu_model()


if __name__ == "__main__":
    sys.exit(run_command(main))

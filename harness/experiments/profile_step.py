"""The profiling step: how fast this machine prefills. Measured once per machine and model, in a process of its own."""

import hashlib
import json
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.serving.engine_start import engine_environment
from harness.assembly.effective import EffectiveTokens
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.assembly.simulated import shape_of
from harness.experiments.fingerprint import slug
from harness.experiments.machine import cpu_model, share_cores
from workloads.length_scale import effective_tokens

CACHE = Path("outputs/profiles")


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile file and its content (see engine.torch_backend.profile)."""

    path: Path
    content: Mapping[str, Any]
    digest: str

    @property
    def device(self) -> str:
        """Name of the device it was measured on."""
        return str(self.content["device"])

    def seconds_of(self) -> Callable[[int], float]:
        """Prefill seconds of a prompt of so many tokens as sent: straight lines between measured lengths."""
        points = sorted(
            (int(entry["new_tokens"]), float(entry["seconds"]))
            for entry in self.content["prefill"]
            if entry["context_tokens"] == 0
        )
        return lambda tokens: interpolate(points, tokens)


def read_profile(path: Path, setting: str = "device.profile") -> Profile:
    """setting: that names the file, for messages. Raises SettingsError when the file is not a profile."""
    try:
        raw = path.read_bytes()
        content = json.loads(raw)
        usable = len([entry for entry in content["prefill"] if entry["context_tokens"] == 0]) >= 2 and content["device"]
    except OSError as error:
        raise SettingsError(f"{setting}: cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{setting}: {path} is not a profile file") from error
    if not usable:
        raise SettingsError(f"{setting}: {path} holds fewer than two prefill times")
    return Profile(path, content, hashlib.sha256(raw).hexdigest())


def require_model(profile: Profile, point: PointSettings) -> None:
    """Raise SettingsError for a profile of another model: its times say nothing of this one."""
    measured, name = profile.content.get("model"), shape_of(point).name
    if measured != name:
        raise SettingsError(f"{profile.path} is a profile of {measured}, and model={point.model.name} is {name}")


def require_ranks(profile: Profile, point: PointSettings) -> None:
    """Raise SettingsError for a profile of a model that was split otherwise."""
    measured, ranks = profile.content.get("tensor_parallel", 1), point.model.tensor_parallel or 1
    if measured != ranks:
        raise SettingsError(
            f"{profile.path} was measured with tensor_parallel={measured}, model.tensor_parallel is {ranks}"
        )


def profile_of(point: PointSettings, tell: Callable[[str], None], cache: Path = CACHE) -> Profile:
    """The profile a point's settings name, else this machine's, measured now if it never was.

    point: with its device resolved. Raises SettingsError.
    """
    if point.device.profile is not None:
        profile = read_profile(Path(point.device.profile))
        if not point.device.simulated:
            require_ranks(profile, point)
        return profile
    # The longest length is part of the name: a workload with longer prompts gets a profile that reaches them.
    ranks = point.model.tensor_parallel or 1
    stem = f"{slug(point.model.checkpoint)}_{profiled_tokens(point)}" + (f"_{ranks}_ranks" if ranks > 1 else "")
    path = cache / machine_fingerprint(point) / f"{stem}.json"
    if not path.is_file():
        tell(f"profiling {point.model.name} on this machine, once (kept in {path})")
        _measure(point, path)
    return read_profile(path)


def machine_fingerprint(point: PointSettings) -> str:
    """Names what a profile depends on beside the model: device, threads, number format."""
    device = _cuda_name() if point.device.kind == "cuda" else cpu_model()
    return slug(f"{device} {point.device.threads} threads {point.model.dtype}")


def profiled_tokens(point: PointSettings) -> int:
    """Longest prompt to time: the longest the workload admits."""
    longest = effective_tokens(point.workload.max_input, point.model.length_scale)
    return min(longest, EffectiveTokens.of(point).max_context_tokens)


def interpolate(points: list[tuple[int, float]], at: int) -> float:
    """Piecewise linear; the first and the last line go on beyond the ends, never below the smallest value."""
    i = min(max(bisect_left([x for x, _ in points], at), 1), len(points) - 1)
    (x0, y0), (x1, y1) = points[i - 1], points[i]
    return max(y0 + (y1 - y0) * (at - x0) / (x1 - x0), min(y for _, y in points))


def _measure(point: PointSettings, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "engine.torch_backend.profile", "--model", point.model.checkpoint]
    argv += ["--out", str(path), "--device", point.device.kind, "--threads", str(point.device.threads)]
    argv += ["--max-tokens", str(profiled_tokens(point)), "--dtype", point.model.dtype]
    ranks = point.model.tensor_parallel or 1
    if ranks > 1:
        argv += ["--tensor-parallel", str(ranks)]
        first = share_cores(point.device).spread(ranks).engine
        argv += [] if first is None else ["--first-cpu", str(first)]
    environment = engine_environment(point.device.threads)
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env=environment)
    if done.returncode != 0 or not path.is_file():
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SettingsError(f"the profiling step failed: {last}")


def _cuda_name() -> str:
    question = "import torch; print(torch.cuda.get_device_name())"
    done = subprocess.run([sys.executable, "-c", question], check=False, capture_output=True, text=True)
    return done.stdout.strip() or "cuda"

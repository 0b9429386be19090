"""Fetch the public traces of sources.yaml into data/traces: `python -m workloads.fetch [name ...]`.

Every file is checked by sha256 before it takes its place. Where the publisher's checksum is not known, the first fetch
prints it and pins it in data/traces/checksums.json; later fetches must match.
"""

import hashlib
import json
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command
from workloads.whole_file import write_whole

SOURCES = Path(__file__).resolve().parent / "sources.yaml"
OUT = Path("data/traces")
PINS = "checksums.json"
CHUNK_BYTES = 1 << 20
LFS_POINTER = b"version https://git-lfs"


class FetchError(RuntimeError):
    """One source that could not be had; a sentence that names it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A public original. sha256 None: not known, pinned at the first fetch."""

    name: str
    file: str
    url: str
    licence: str
    sha256: str | None


def read_sources(path: Path = SOURCES) -> dict[str, Source]:
    """The sources by name. Raises FetchError for an entry that lacks a key or has an unknown one."""
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise FetchError(f"{path}: not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(raw, Mapping):
        raise FetchError(f"{path}: expected sources by name")
    sources = {}
    for name, entry in raw.items():
        try:
            sources[name] = Source(name=name, **entry)
        except TypeError as error:
            raise FetchError(f"{path}: source {name}: {error}") from error
    return sources


def fetch(source: Source, out: Path, pins: dict[str, str]) -> str:
    """Bring one file to `out`; a file already there and right is left alone. Returns a line for the user.

    pins: checksums pinned earlier, by file name; a new one is added. Raises FetchError; `out` then has no new file.
    """
    target = out / source.file
    expected = source.sha256 or pins.get(source.file)
    if expected and target.is_file() and _sha256(target) == expected:
        return f"{source.name}: {target} is already there"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".fetch-") as folder:
        partial = Path(folder) / source.file
        _download(source, partial)
        found = _sha256(partial)
        if expected and found != expected:
            raise FetchError(f"{source.name}: {source.url} has sha256 {found}, expected {expected}; nothing was kept")
        partial.replace(target)
    pins.setdefault(source.file, found)
    pinned = "" if source.sha256 else f"; sha256 {found} pinned in {out / PINS}"
    return f"{source.name}: {target} ({target.stat().st_size} bytes, {source.licence}){pinned}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command: fetch the named sources, or all. Exit code 2 if any could not be had."""
    parser = OneSentenceParser(prog="python -m workloads.fetch", description="Fetch public traces.")
    parser.add_argument("names", nargs="*", help="sources to fetch (default: all)")
    parser.add_argument("--sources", type=Path, default=SOURCES)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--list", action="store_true", help="print the sources and stop")
    given = parser.parse_args(arguments)
    try:
        sources = read_sources(given.sources)
        chosen = _chosen(sources, given.names)
        if given.list:
            for source in chosen:
                print(f"{source.name}: {source.url} ({source.licence})")
            return 0
        pins = _read_pins(given.out / PINS)
    except (FetchError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return MISTAKE_STATUS
    failed = 0
    for source in chosen:
        try:
            print(fetch(source, given.out, pins))
            write_whole(given.out / PINS, (json.dumps(pins, indent=2, sort_keys=True) + "\n").encode())
        except (FetchError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            failed += 1
    if failed:
        print(f"{failed} of {len(chosen)} sources could not be fetched", file=sys.stderr)
    return MISTAKE_STATUS if failed else 0


def _chosen(sources: Mapping[str, Source], names: Sequence[str]) -> list[Source]:
    unknown = [name for name in names if name not in sources]
    if unknown:
        raise FetchError(f"no source named {unknown[0]}; there are {', '.join(sources)}")
    return [sources[name] for name in names or sources]


def _read_pins(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    try:
        pins = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FetchError(f"{path}: not JSON ({error}); remove it to pin anew") from error
    if not isinstance(pins, dict):
        raise FetchError(f"{path}: expected checksums by file name; remove it to pin anew")
    return pins


def _download(source: Source, to: Path) -> None:
    try:
        with urllib.request.urlopen(source.url, timeout=60) as reply, to.open("wb") as file:
            while chunk := reply.read(CHUNK_BYTES):
                file.write(chunk)
    except urllib.error.HTTPError as error:
        raise FetchError(f"{source.name}: {source.url} answered {error.code} {error.reason}") from error
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise FetchError(f"{source.name}: {source.url} cannot be reached ({reason}); is it online here?") from error
    with to.open("rb") as file:
        if file.read(len(LFS_POINTER)) == LFS_POINTER:
            raise FetchError(f"{source.name}: {source.url} gave a git-LFS pointer, not the file; nothing was kept")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(run_command(main))

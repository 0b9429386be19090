"""A place for results is looked at before anything is measured."""

import contextlib
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.assembly.reading import SettingsError
from harness.experiments.output import OutputSettings, tell
from harness.experiments.room import require_writable

ROOT = Path(__file__).resolve().parents[2]


def a_file(place: Path) -> None:
    place.write_text("")


def below_a_file(place: Path) -> None:
    place.mkdir()
    (place / "raw").write_text("")


def a_file_for_tables(place: Path) -> None:
    place.mkdir()
    (place / "tables").write_text("")


def a_link_to_nothing(place: Path) -> None:
    place.symlink_to(place.with_name("nothing"))


def a_link_to_itself(place: Path) -> None:
    place.symlink_to(place.name)


@pytest.mark.parametrize("made", [a_file, below_a_file, a_file_for_tables, a_link_to_nothing, a_link_to_itself])
def test_what_is_no_folder_is_told(tmp_path: Path, made: Callable[[Path], None]) -> None:
    made(tmp_path / "results")
    with pytest.raises(SettingsError, match=r"^output\.results: cannot write to .*results.*: ."):
        require_writable(tmp_path / "results", "smoke")


@pytest.mark.parametrize("made", [a_link_to_nothing, a_link_to_itself])
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, made: Callable[[Path], None]) -> None:
    made(tmp_path / "results")
    with pytest.raises(SettingsError, match=r"cannot write to .*/raw/smoke: .*/results is a link that leads nowhere"):
        require_writable(tmp_path / "results", "smoke")


def test_a_name_that_is_too_long_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="File name too long"):
        require_writable(tmp_path / ("a" * 300), "smoke")


@pytest.mark.parametrize("name", ["new", "new/below", "with space", "with\nline", "\u00fcn\u00ef"])
def test_a_new_folder_is_not_made_for_looking(tmp_path: Path, name: str) -> None:
    require_writable(tmp_path / name, "smoke")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_told_although_it_still_makes_empty_files(tmp_path: Path) -> None:
    """A limit for the size of any file stands for the disk."""
    code = f"""
import contextlib
import resource, signal
from pathlib import Path
from harness.experiments.room import require_writable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300, {resource.RLIM_INFINITY}))
try:
    require_writable(Path({str(tmp_path)!r}), "smoke")
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == f"output.results: cannot write to {tmp_path}/raw/smoke: File too large\n"
    assert not list(tmp_path.iterdir())


def test_an_empty_name_is_refused_and_home_is_meant_by_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"output\.results must name a folder"):
        OutputSettings(results=" ")
    monkeypatch.setenv("HOME", "/somebody")
    assert OutputSettings(results="~/mine").results == "/somebody/mine"


def test_a_log_on_a_full_disk_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", buffering=1) as full:
        monkeypatch.setattr("sys.stderr", full)
        tell("a line")
        monkeypatch.undo()
        with contextlib.suppress(OSError):  # what it still holds
            full.close()

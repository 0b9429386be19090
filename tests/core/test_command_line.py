"""Every command alike: a wrong command line, Ctrl-C during the imports, a reader that left."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.core.command_line import INTERRUPTED_STATUS, READER_LEFT_STATUS, OneSentenceParser, run_command

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "engine.serving.server": "aiohttp",
    "engine.torch_backend.checkpoint": "torch",
    "engine.torch_backend.profile": "torch",
    "figures.check_claims": "pandas",
    "figures.draw": "matplotlib",
    "harness.experiments.run": "hydra",
    "harness.experiments.show": "numpy",
}
"""Commands by the package that takes long to import."""

RIGHT = {
    "engine.torch_backend.checkpoint": ["--out", "x"],
    "engine.torch_backend.profile": ["--out", "x"],
    "harness.experiments.show": ["x"],
}
WRONG = {
    "engine.serving.instance": ["--channel-fd", "x"],
    "engine.serving.replay": [],
    "engine.serving.server": ["--kv-blocks", "x"],
    "engine.torch_backend.checkpoint": [],
    "engine.torch_backend.profile": [],
    "figures.check_claims": ["--nonsense"],
    "figures.draw": ["--rate", "x"],
    "harness.experiments.show": [],
    "baselines.servers.build_environment": ["x"],
    "workloads.fetch": ["--nonsense"],
    "workloads.synthetic": ["--requests", "x"],
}


def start(
    module: str, *arguments: str, before: Path | None = None, stdout: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """The command as a user starts it. before: a folder in which modules are found first."""
    path = os.pathsep.join(str(folder) for folder in (before, ROOT) if folder is not None)
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_every_command_ends_and_parses_alike() -> None:
    packages = ("engine", "workloads", "harness", "figures", "baselines", "bench")
    commands = 0
    for path in (path for package in packages for path in sorted((ROOT / package).rglob("*.py"))):
        text = path.read_text(encoding="utf-8")
        assert "argparse.ArgumentParser(" not in text.replace("(argparse.ArgumentParser)", ""), (
            f"{path}: its own parser"
        )
        if 'if __name__ == "__main__"' in text and not path.is_relative_to(ROOT / "bench"):
            commands += 1
            # The engine process and the other ranks of its group hear no signal at all.
            assert path.name in ("instance.py", "rank_process.py") or "run_command(main)" in text, path
    assert commands > 10


@pytest.mark.parametrize(("module", "package"), HEAVY.items())
def test_ctrl_c_during_the_imports_is_quiet(tmp_path: Path, module: str, package: str) -> None:
    (tmp_path / f"{package}.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    process = start(module, *RIGHT.get(module, ()), before=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (INTERRUPTED_STATUS, "interrupted\n")


@pytest.mark.parametrize(("module", "arguments"), WRONG.items())
def test_a_wrong_command_line_is_one_sentence(module: str, arguments: list[str]) -> None:
    process = start(module, *arguments)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"{module.rpartition('.')[2]}: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("module", ["harness.experiments.run", "harness.experiments.show", "figures.draw"])
def test_a_reader_that_left_is_no_fault(module: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = start(module, "--help", stdout=writer)
    os.close(writer)
    _, err = process.communicate(timeout=120)
    # argparse swallows the error of its help's last write.
    assert process.returncode in (0, READER_LEFT_STATUS)
    assert err == ""


def ended(code: str) -> tuple[int, str]:
    """Exit status and standard error of a program whose standard output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", f"import os, sys\nfrom engine.core.command_line import run_command\n{code}"],
        cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize("text", ["'one line'", "'many lines\\n' * 100_000"])
def test_what_a_command_prints_may_find_no_reader(text: str) -> None:
    assert ended(f"sys.exit(run_command(lambda: print({text}) or 0))") == (READER_LEFT_STATUS, "")


@pytest.mark.parametrize("text", ["'one line'", "'many lines\\n' * 100_000"])
def test_what_a_command_prints_may_find_no_room(text: str) -> None:
    code = (
        f"from engine.core.command_line import run_command\nraise SystemExit(run_command(lambda: print({text}) or 0))"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_closed_streams_are_no_fault(closed: str) -> None:
    code = "from engine.core.command_line import run_command; raise SystemExit(run_command(lambda: print(1) or 5))"
    done = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, code], cwd=ROOT, stderr=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stderr) == (5, b"")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (OSError(errno.EROFS, "Read-only file system", "/a/b"), "error: Read-only file system: /a/b\n"),
        (OSError(errno.EMFILE, "Too many open files"), "error: Too many open files\n"),
    ],
)
def test_what_the_machine_lacks_is_one_sentence(capsys: pytest.CaptureFixture[str], fault: OSError, says: str) -> None:
    def lacking() -> int:
        raise fault

    assert run_command(lacking) == 2
    assert capsys.readouterr().err == says


def test_a_file_that_should_be_there_is_a_fault_to_be_seen() -> None:
    def lost() -> int:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/a")

    with pytest.raises(FileNotFoundError):
        run_command(lost)


def test_another_broken_pipe_is_a_fault_to_be_seen(tmp_path: Path) -> None:
    def broken() -> int:
        raise BrokenPipeError("a socket of the program's own")

    with pytest.raises(BrokenPipeError, match="of the program's own"):
        run_command(broken)


def test_the_status_of_the_command_is_kept() -> None:
    assert run_command(lambda: 7) == 7


def interrupted() -> int:
    raise KeyboardInterrupt


def test_an_interrupt_is_one_word_and_the_next_ends_the_process_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    run: Callable[[Callable[[], int]], int] = run_command
    try:
        assert run(interrupted) == INTERRUPTED_STATUS
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "interrupted\n"


def test_the_parser_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        OneSentenceParser(prog="python -m a.b.tool").parse_args(["--nonsense"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "tool: unrecognized arguments: --nonsense\n"

"""The attention kernel in attention_avx512.cpp: compiled once for a machine, kept in the user's cache folder."""

import ctypes
import hashlib
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from engine.torch_backend.attention import attend
from engine.torch_backend.attention_kernels import KeysAndValues, Lengths

SOURCE = Path(__file__).with_name("attention_avx512.cpp")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    *("-std=c++17", "-O3", "-fno-math-errno", "-shared", "-fPIC"),
    *("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"),
)
COMPILE_S = 120.0
HEAD_DIMS = range(16, 257, 16)


class CannotCompileError(Exception):
    """The kernel cannot be compiled here; the message completes "attention avx512 ..."."""


class Avx512:
    """float32 attention on one core with AVX-512: 4096 tokens take a quarter less time than in sdpa, 512 half."""

    name = "avx512"
    joins = False

    def __init__(self, cache_folder: Path | None = None, compilers: Sequence[str] = COMPILERS) -> None:
        """Compile it, where that was not done before. Raises CannotCompileError."""
        try:
            library = ctypes.CDLL(str(compiled(cache_folder or user_cache(), compilers)))
        except OSError as error:
            raise CannotCompileError(f"cannot be loaded: {error}") from error
        number, pointer = ctypes.c_long, ctypes.c_void_p
        self._workspace = library.attend_workspace
        self._workspace.argtypes, self._workspace.restype = [number, number], number
        self._attend = library.attend  # ctypes lets other threads run meanwhile
        self._attend.argtypes = [*[pointer] * 3, *[number] * 6, ctypes.c_float, pointer]
        self._attend.restype = None

    def __call__(self, queries: torch.Tensor, read: KeysAndValues, lengths: Lengths) -> None:
        """One sequence after the other."""
        for part, (keys, values) in zip(torch.split(queries, list(lengths.rows)), read, strict=True):
            if part.shape[0] == 1:  # not worth laying all keys out anew
                part.copy_(attend(part, keys, values))
            else:
                self._replace(part, keys, values)

    def _replace(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        rows, heads, dim = queries.shape
        positions, kv_heads, _ = keys.shape
        stride = keys.stride(0)
        # The kernel trusts these: it sees no shapes.
        assert queries.is_contiguous()
        assert keys.stride() == values.stride() == (stride, dim, 1)
        workspace = torch.empty(self._workspace(positions, dim))
        self._attend(
            queries.data_ptr(),
            keys.data_ptr(),
            values.data_ptr(),
            *(rows, positions, heads, kv_heads, dim, stride),
            1 / math.sqrt(dim),
            workspace.data_ptr(),
        )


def user_cache() -> Path:
    """Where programs of this user keep what they can make again. Raises CannotCompileError where there is no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flowprefill"
    except RuntimeError as error:
        raise CannotCompileError(f"cannot be kept: {error}") from error


def compiled(folder: Path, compilers: Sequence[str]) -> Path:
    """The library, from the folder or new. One file for each text of the source. Raises CannotCompileError."""
    text = SOURCE.read_bytes()
    library = folder / f"attention-{hashlib.sha256(text + repr(FLAGS).encode()).hexdigest()[:16]}.so"
    if library.is_file():
        return library
    compiler = next(filter(None, map(shutil.which, compilers)), None)
    if compiler is None:
        raise CannotCompileError(f"cannot be compiled: none of {', '.join(compilers)} is installed")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".compiling-") as beside:
            made = Path(beside) / library.name
            subprocess.run(
                [compiler, *FLAGS, "-o", str(made), str(SOURCE)],
                check=True,
                capture_output=True,
                text=True,
                timeout=COMPILE_S,
            )
            made.replace(library)  # whole or not at all, whoever else compiles it now
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or [f"{compiler} failed"])[0]
        raise CannotCompileError(f"cannot be compiled: {reason}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCompileError(f"cannot be compiled: {error}") from error
    return library

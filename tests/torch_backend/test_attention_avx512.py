"""The kernel compiled for CPUs with AVX-512, where there is such a CPU and a compiler."""

import shutil
from pathlib import Path

import pytest
import torch

from engine.torch_backend.attention_avx512 import COMPILERS, Avx512, CannotCompileError, compiled
from engine.torch_backend.attention_kernels import Lengths
from tests.torch_backend.test_attention import by_definition

HERE = torch.backends.cpu.get_cpu_capability() == "AVX512" and any(map(shutil.which, COMPILERS))
needs_avx512 = pytest.mark.skipif(not HERE, reason="needs a CPU with AVX-512 and a C++ compiler")


@pytest.fixture(scope="module")
def kernel() -> Avx512:
    return Avx512()


def draw(rows: int, positions: int, heads: int, kv_heads: int, dim: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(rows * positions)
    queries = torch.randn(rows, heads, dim, generator=generator)
    cache = torch.randn(2, positions + 5, kv_heads, dim, generator=generator)
    return queries, cache[0, 2:-3], cache[1, 2:-3]


@needs_avx512
@pytest.mark.parametrize(
    ("rows", "context", "heads", "kv_heads", "dim"),
    [
        (1, 7, 4, 2, 64),
        (2, 0, 1, 1, 16),
        (5, 1, 4, 2, 64),
        (6, 15, 2, 2, 32),  # one strip of six stacked rows and a half
        (97, 0, 1, 1, 16),  # more than a block of 96 stacked rows
        (40, 508, 3, 1, 48),  # the first rows see none of the second 512 keys
        (70, 1000, 6, 2, 80),  # more than one panel of a head
        (33, 64, 2, 1, 256),
    ],
)
def test_rows_see_their_context_and_themselves(
    kernel: Avx512, rows: int, context: int, heads: int, kv_heads: int, dim: int
) -> None:
    queries, keys, values = draw(rows, context + rows, heads, kv_heads, dim)
    wanted = by_definition(queries, keys, values)
    kernel(queries, iter([(keys, values)]), Lengths((rows,), (context + rows,)))
    torch.testing.assert_close(queries.double(), wanted, rtol=1e-5, atol=1e-6)


@needs_avx512
@pytest.mark.parametrize("scale", [0.0, 1e-20, 30.0, 1e4])
def test_scores_of_any_size(kernel: Avx512, scale: float) -> None:
    queries, keys, values = draw(20, 600, 2, 1, 16)
    queries *= scale
    wanted = by_definition(queries, keys, values)
    kernel(queries, iter([(keys, values)]), Lengths((20,), (600,)))
    torch.testing.assert_close(queries.double(), wanted, rtol=1e-3, atol=1e-3)


@needs_avx512
def test_what_is_no_number_stays_so_and_in_its_row(kernel: Avx512) -> None:
    queries, keys, values = draw(9, 9, 2, 2, 16)
    wanted = by_definition(queries, keys, values)
    queries[4, 1] = float("nan")
    kernel(queries, iter([(keys, values)]), Lengths((9,), (9,)))
    assert queries[4, 1].isnan().all()
    wanted[4, 1] = queries[4, 1] = 0
    torch.testing.assert_close(queries.double(), wanted, rtol=1e-5, atol=1e-6)


@needs_avx512
def test_a_row_takes_nothing_of_later_values_however_large(kernel: Avx512) -> None:
    queries, keys, values = draw(12, 12, 2, 1, 16)
    wanted = by_definition(queries, keys, values)
    values[7:] = 3e38
    kernel(queries, iter([(keys, values)]), Lengths((12,), (12,)))
    torch.testing.assert_close(queries[:7].double(), wanted[:7], rtol=1e-5, atol=1e-6)


@needs_avx512
def test_it_is_compiled_once(tmp_path: Path) -> None:
    library = compiled(tmp_path / "cache", COMPILERS)
    assert list((tmp_path / "cache").iterdir()) == [library]
    assert compiled(tmp_path / "cache", ()) == library


def test_without_a_compiler_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(CannotCompileError, match="cannot be compiled: none of no-such, nor-this is installed"):
        Avx512(tmp_path, ("no-such", "nor-this"))


def test_what_the_compiler_does_not_like_is_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho error: unknown argument -mavx512f >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(CannotCompileError, match="cannot be compiled: error: unknown argument -mavx512f"):
        Avx512(tmp_path / "cache", (str(broken),))
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotCompileError, match=r"cannot be compiled: .*Not a directory"):
        Avx512(tmp_path / "file" / "cache", ("sh",))

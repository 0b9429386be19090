import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def real_traces() -> Path:
    folder = Path(os.environ.get("FLOWPREFILL_TRACES") or REPOSITORY.parent / "shared" / "traces")
    if not folder.is_dir():
        pytest.skip("the production traces are not at hand (FLOWPREFILL_TRACES)")
    return folder


@pytest.fixture
def write(tmp_path):
    """Writes a small file and returns its path; bytes as they are."""

    def _write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return _write

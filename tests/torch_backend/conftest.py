from typing import Any

import pytest
import torch

from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.llama import Llama
from tests.torch_backend.engine_run import hf_model


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny() -> Llama:
    return load_model("cpu_tiny")


@pytest.fixture(scope="session")
def tiny_reference(tiny: Llama) -> Any:
    return hf_model("cpu_tiny", tiny)

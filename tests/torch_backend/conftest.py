import pytest
import torch

from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.llama import Llama
from tests.torch_backend.families import FAMILIES, Family, make_family


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny() -> Llama:
    return load_model("cpu_tiny")


@pytest.fixture(scope="session", params=list(FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    return make_family(request.param, tmp_path_factory.mktemp("families"))

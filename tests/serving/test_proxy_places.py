"""Where a proxy's instances run: a CUDA device each, and a CPU each where they are pinned."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from engine.serving import model_ranks as ranks
from engine.serving import proxy_engine
from engine.serving.proxy_engine import ProxyEngine
from engine.serving.proxy_settings import ProxySettings
from engine.serving.settings import EngineSettings, SettingsError
from engine.torch_backend.rank_messages import ModelChoice
from engine.torch_backend.settings import ExecutorSettings


def places(settings: EngineSettings, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int | None]]:
    """Device and CPU of each of two prefill instances and a decode instance."""
    found: dict[str, tuple[int, int | None]] = {}

    def kept(name: str, own: EngineSettings, *_: object) -> str:
        found[name] = (own.cuda_device, own.engine_cpu)
        return name

    async def start() -> None:
        ProxyEngine(ProxySettings(2, 1), settings, ())

    monkeypatch.setattr(proxy_engine, "KeptInstance", kept)
    asyncio.run(start())
    return found


def test_instances_take_the_next_places(monkeypatch: pytest.MonkeyPatch) -> None:
    found = places(EngineSettings(engine_cpu=4), monkeypatch)
    assert found == {"prefill-0": (0, 4), "prefill-1": (1, 5), "decode-0": (2, 6)}
    assert places(EngineSettings(cuda_device=1), monkeypatch)["decode-0"] == (3, None)


@pytest.mark.parametrize(("wanted", "device"), [(0, "cuda:0"), (1, "cuda:1"), (2, "cuda:0")])
def test_after_the_last_device_comes_the_first(wanted: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    @contextmanager
    def loading(choice: ModelChoice, *_: object) -> Iterator[tuple[None, None]]:
        asked.append(choice.device)
        yield None, None

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(ranks, "load_ranks", loading)
    with ranks.model_ranks(EngineSettings(device="cuda", cuda_device=wanted), ExecutorSettings(), print):
        pass
    assert asked == [device]


def test_ranks_take_the_devices_from_the_first_on() -> None:
    settings = EngineSettings(device="cuda", cuda_device=1, tensor_parallel=2)
    with (
        pytest.raises(SettingsError, match="--cuda-device conflicts with --tensor-parallel"),
        ranks.model_ranks(settings, ExecutorSettings(), print),
    ):
        pass

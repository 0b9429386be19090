"""Two parts: operators only launch; and a prefill that is paused, while another one runs, gives the same bits."""

import random
from collections.abc import Sequence

import torch

from bench.gpu_check.families import write_families
from bench.gpu_check.report import Report
from bench.gpu_check.scale import Setting
from bench.gpu_check.stage import Stage, prompt
from engine.core.batch import Sequence as Share
from engine.model.granularity import Granularity, TileSettings
from engine.torch_backend.gate import Gate
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.program import Operator

TINY_TOKENS = 70
SMALL_TILES = TileSettings(rows=32, pairs=900)


def check_waiting(setting: Setting, report: Report) -> None:
    """Operators only launch: none makes the host wait for the device. CUDA tells what does."""
    for name, folder in write_families(setting.scratch):
        stage = Stage(load_model(str(folder), setting.scale.device, _half(setting)), 2 * TINY_TOKENS)
        ids = {"a": prompt(TINY_TOKENS, 512), "b": prompt(TINY_TOKENS // 2, 512)}
        shares = [Share(request_id, 0, len(tokens)) for request_id, tokens in ids.items()]
        operators = stage.program(shares, ids).operators
        waiting = [operator.name for operator in operators if _waits(operator, setting.scale.device)]
        if setting.scale.device == "cuda":
            known = [waits for waits in waiting if waits.endswith(".experts")] if not _groups_on_device() else []
            if known:
                report.number(f"{name}: experts that wait, as torch's grouped_mm does on such a GPU", len(known))
            others = len(waiting) - len(known)
            report.must(f"{name}: operators that wait for the device", not others, "0", others)
        else:
            report.number(f"{name}: operators run (what waits shows on CUDA only)", len(operators))
        for operator_name in waiting:
            report.row("waiting", family=name, operator=operator_name)


def _groups_on_device() -> bool:
    """Whether torch's grouped_mm takes the rows of each group from the device: in bfloat16, on GPUs of compute
    capability 9 and 10 (Hopper, data-centre Blackwell).

    On others it copies them to the host, and multiplies group by group; later versions than 2.13 may do so no more.
    """
    return torch.cuda.get_device_capability()[0] in (9, 10)


def _waits(operator: Operator, device: str) -> bool:
    """On a CPU there is no device to wait for."""
    operator.run()  # the first time a library may set itself up
    if device != "cuda":
        return False
    torch.cuda.set_sync_debug_mode("error")
    try:
        operator.run()
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        return True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return False


def _half(setting: Setting) -> str:
    return "bfloat16" if setting.scale.device == "cuda" else "float32"


def check_pausing(setting: Setting, report: Report, model: Decoder) -> None:
    scale = setting.scale
    for name, folder in write_families(setting.scratch):
        small = load_model(str(folder), scale.device, _half(setting))
        for granularity in (Granularity.OPERATOR, Granularity.TILE):
            stage = Stage(small, 2 * TINY_TOKENS + 32, granularity, SMALL_TILES)
            ids = prompt(TINY_TOKENS, 512)
            every = range(len(stage.whole(ids, "counted").operators))
            stage.cache.free("counted")
            _judge(report, f"{name} {granularity}, every boundary", stage, ids, every)
    stage = Stage(model, 2 * scale.pause_tokens + 32)
    ids = prompt(scale.pause_tokens, model.shape.vocab_size)
    count = len(stage.whole(ids, "counted").operators)
    stage.cache.free("counted")
    some = sorted(random.Random(0).sample(range(count), min(scale.boundaries, count)))
    _judge(report, f"{scale.model} at {scale.pause_tokens} tokens, random boundaries", stage, ids, some)


def _judge(report: Report, what: str, stage: Stage, ids: Sequence[int], boundaries: Sequence[int]) -> None:
    wanted = _outcome(stage, ids, None)
    differing = [index for index in boundaries if not _same(_outcome(stage, ids, index), wanted)]
    for index in boundaries:
        report.row("pausing", what=what, boundary=index, identical=index not in differing)
    report.must(f"{what}: {len(boundaries)} pauses that change a bit", not differing, "0", len(differing))


def _outcome(stage: Stage, ids: Sequence[int], stop_index: int | None) -> list[torch.Tensor]:
    """Logits and the keys and values written; stop_index: paused there, None = never."""
    program, gate = stage.whole(ids), Gate()
    if stop_index is not None:
        gate.stop_at(stop_index, now_ns=0)
        if stage.run(program, gate) or program.cursor != stop_index:
            raise AssertionError(f"asked to stop at operator {stop_index}, it went on to {program.cursor}")
        stage.run(stage.whole(ids[: len(ids) // 2 + 1], "other"))
        stage.cache.free("other")
        gate.open()
    if not stage.run(program, gate):
        raise AssertionError("it stopped though nobody asked")
    assert program.state.logits is not None
    kept = [program.state.logits.clone()]
    for layer in range(stage.model.shape.layers):
        kept += [part.clone() for part in stage.cache.read(layer, "r", len(ids))]
    stage.cache.free("r")
    return kept


def _same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))

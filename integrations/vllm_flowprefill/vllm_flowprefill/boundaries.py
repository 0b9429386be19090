"""Operator boundaries of a dense decoder in vLLM: which modules of a layer are followed by one."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from vllm_flowprefill.settings import Granularity, SettingError

OPERATORS = ("self_attn.qkv_proj", "self_attn.attn", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")
"""Of one layer, in order of execution."""
AFTER: dict[Granularity, tuple[str, ...]] = {
    "layer": ("mlp.down_proj",),
    "half_layer": ("self_attn.o_proj", "mlp.down_proj"),
    "operator": OPERATORS,
}
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.(.+)$")


def boundaries(names: Iterator[str], granularity: Granularity) -> list[tuple[str, str]]:
    """(module name, L<layer>.<operator>) for each boundary.

    names: of all modules of the model. Raises SettingError for a model whose layers are not made of OPERATORS.
    """
    layers: dict[int, dict[str, str]] = {}
    for name in names:
        found = LAYER.search(name)
        if found is not None:
            layers.setdefault(int(found[1]), {})[found[2]] = name
    if not layers:
        raise SettingError("vllm_flowprefill: --model: it has no layers that are called layers.N")
    for number, modules in layers.items():
        for operator in OPERATORS:
            if operator not in modules:
                raise SettingError(
                    f"vllm_flowprefill: --model: layer {number} has no {operator}; only dense decoders are supported"
                )
    return [
        (modules[operator], f"L{number}.{operator.rpartition('.')[2]}")
        for number, modules in sorted(layers.items())
        for operator in AFTER[granularity]
    ]


class Hooks:
    """Calls `at_boundary(label)` after each module with a boundary, while armed.

    A module with a hook is called by torch's slow path: in decode steps, which nothing preempts, that would be felt.
    model: a torch module. Raises SettingError as `boundaries`.
    """

    def __init__(self, model: Any, granularity: Granularity, at_boundary: Callable[[str], None]) -> None:
        modules = dict(model.named_modules())
        self._hooks = [
            (modules[name], _calls(at_boundary, label)) for name, label in boundaries(iter(modules), granularity)
        ]
        self._handles: list[Any] = []

    def __len__(self) -> int:
        return len(self._hooks)

    def arm(self, wanted: bool) -> None:
        """From now on they are called, or not."""
        if wanted and not self._handles:
            self._handles = [module.register_forward_hook(call) for module, call in self._hooks]
        elif not wanted and self._handles:
            for handle in self._handles:
                handle.remove()
            self._handles = []


def _calls(at_boundary: Callable[[str], None], label: str) -> Callable[..., None]:
    def after(module: Any, arguments: Any, output: Any) -> None:  # noqa: ARG001 - torch's protocol
        at_boundary(label)

    return after

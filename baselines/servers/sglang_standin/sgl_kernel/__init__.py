"""Stands in for SGLang's compiled CPU kernels, of which no build is published.

SGLang imports names from here when it starts with its CPU engine; without AMX it then runs its own torch code and calls
none of them. Any name can be imported, as a function that raises when called: a run that came to need a kernel fails,
and nothing is ever computed by a stand-in.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NoReturn


class StandInCalledError(RuntimeError):
    """SGLang called a compiled kernel that this environment does not have."""


def absent(name: str) -> Callable[..., NoReturn]:
    """A function that raises StandInCalledError, naming itself."""

    def kernel(*_: object, **__: object) -> NoReturn:
        raise StandInCalledError(f"{name} is a compiled kernel of SGLang, and only a stand-in is installed here")

    kernel.__name__ = kernel.__qualname__ = name.rpartition(".")[2]
    return kernel


class _Submodules(MetaPathFinder, Loader):
    """Every `sgl_kernel.x` can be imported; it is as empty as the package."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith(__name__ + ".") else None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__getattr__"] = _attributes_of(module.__name__)


def _attributes_of(module: str) -> Callable[[str], Callable[..., NoReturn]]:
    def attribute(name: str) -> Callable[..., NoReturn]:
        # Asking for __path__ and the like is how Python looks at a module, not a use of a kernel.
        if name.startswith("__"):
            raise AttributeError(name)
        return absent(f"{module}.{name}")

    return attribute


__getattr__ = _attributes_of(__name__)
sys.meta_path.append(_Submodules())

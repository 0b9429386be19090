"""Stands in for SGLang's compiled CPU kernels, of which no build is published.

SGLang imports names from here when it starts with its CPU engine; without AMX it then runs its own torch code and calls
none of them. Any name can be imported from the package, as a function that raises when called: a run that came to need
a kernel fails, and nothing is ever computed by a stand-in. It has no submodules: where SGLang misses one, it goes its
own way around it.
"""

from collections.abc import Callable
from typing import NoReturn


class StandInCalledError(RuntimeError):
    """SGLang called a compiled kernel that this environment does not have."""


def absent(name: str) -> Callable[..., NoReturn]:
    """A function that raises StandInCalledError, naming itself."""

    def kernel(*_: object, **__: object) -> NoReturn:
        raise StandInCalledError(f"{name} is a compiled kernel of SGLang, and only a stand-in is installed here")

    kernel.__name__ = kernel.__qualname__ = name.rpartition(".")[2]
    return kernel


def __getattr__(name: str) -> Callable[..., NoReturn]:
    # Asking for __path__ and the like is how Python looks at a module, not a use of a kernel.
    if name.startswith("__"):
        raise AttributeError(name)
    return absent(f"{__name__}.{name}")

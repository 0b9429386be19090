"""Plain mappings to frozen settings dataclasses: unknown keys, wrong types and values out of range are errors."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class SettingsError(ValueError):
    """A user's mistake in a setting. The message is one sentence that names the setting."""


def bounded(
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    default: Any = dataclasses.MISSING,
) -> Any:
    """A dataclass field whose number must lie in a range; None passes where the type allows it."""
    metadata = {"at_least": at_least, "above": above, "at_most": at_most}
    return dataclasses.field(default=default, metadata=metadata)


def read(cls: type[T], values: object, where: str) -> T:
    """Make the dataclass `cls` from a mapping.

    where: dotted name of the mapping, for messages ("system"); "" for the root.
    Raises SettingsError on an unknown or missing key, a wrong type, a value out of range.
    """
    if not isinstance(values, Mapping):
        raise SettingsError(f"{where or 'the settings'} must be a group of settings, got {values!r}")
    fields = {f.name: f for f in dataclasses.fields(typing.cast(Any, cls)) if f.init}
    hints = typing.get_type_hints(cls)
    for key in values:
        if key not in fields:
            raise SettingsError(unknown_key(_dotted(where, str(key)), list(fields)))
    arguments: dict[str, Any] = {}
    for name, f in fields.items():
        if name in values:
            arguments[name] = _convert(hints[name], values[name], _dotted(where, name))
            _check_range(f.metadata, arguments[name], _dotted(where, name))
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise SettingsError(f"{_dotted(where, name)} is missing")
    try:
        return cls(**arguments)
    except SettingsError:
        raise
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from error


def unknown_key(dotted: str, known: Sequence[str]) -> str:
    """The sentence for a setting that does not exist, with a guess when one is near."""
    key = dotted.rpartition(".")[2]
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown setting {dotted}: {hint}known here: {', '.join(sorted(known))}"


def _dotted(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _check_range(metadata: Mapping[str, Any], value: object, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"{where} must be a finite number, got {value}")
    at_least, above, at_most = metadata.get("at_least"), metadata.get("above"), metadata.get("at_most")
    if above is not None and value <= above:
        raise SettingsError(f"{where} must be above {above:g}, got {value:g}")
    if at_least is not None and value < at_least:
        raise SettingsError(f"{where} must be at least {at_least:g}, got {value:g}")
    if at_most is not None and value > at_most:
        raise SettingsError(f"{where} must be at most {at_most:g}, got {value:g}")


def _convert(hint: Any, value: object, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(arguments, value, where)
    if origin is typing.Literal:
        if value not in arguments:
            raise SettingsError(f"{where} must be one of {', '.join(map(str, arguments))}, got {value!r}")
        return value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read(hint, value, where)
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise SettingsError(f"{where} must be a list, got {value!r}")
        items = tuple(_convert(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
        for i, item in enumerate(items):
            _check_range({}, item, f"{where}[{i}]")
        return items
    if origin in (dict, Mapping) or typing.get_origin(hint) is not None:
        return _convert_mapping(arguments, value, where)
    return _convert_plain(hint, value, where)


def _convert_union(arguments: tuple[Any, ...], value: object, where: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    inner = [argument for argument in arguments if argument is not type(None)]
    for argument in inner[:-1]:
        try:
            return _convert(argument, value, where)
        except SettingsError:
            continue
    return _convert(inner[-1], value, where)


def _convert_mapping(arguments: tuple[Any, ...], value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where} must be a group of names and values, got {value!r}")
    return {str(key): _convert(arguments[1], item, _dotted(where, str(key))) for key, item in value.items()}


def _convert_plain(hint: Any, value: object, where: str) -> Any:
    if hint in (Any, object):
        return value
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    raise SettingsError(f"{where} must be {names.get(hint, hint.__name__)}, got {value!r}")

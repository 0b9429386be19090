"""The cells of an experiment file, expanded to points.

A cell is a mapping of axes: `{system: [a, b], load.rate_scale: [1, 2], load.seed: [0, 1]}`. A key without a dot
picks an option of a settings group; a dotted key is one setting. A value that is not a list is a list of one.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from harness.assembly.reading import SettingsError

Axes = dict[str, Any]

OUTER = ("load.seed", "system")
INNER = "load.rate_scale"
"""Seeds are the outermost loop, so that a seed's systems run close in time and a slow drift of the machine meets all of
them alike; rates are the innermost, so that points of one server follow each other."""


def read_cells(raw: object) -> tuple[dict[str, tuple[Any, ...]], ...]:
    """Check the `cells` of an experiment file. Raises SettingsError."""
    if raw is None:
        return ({},)
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise SettingsError("cells must be a list of axes")
    cells = []
    for i, cell in enumerate(raw):
        if not isinstance(cell, Mapping):
            raise SettingsError(f"cells[{i}] must be a group of axes, got {cell!r}")
        axes = {str(key): tuple(value) if isinstance(value, list | tuple) else (value,) for key, value in cell.items()}
        for key, values in axes.items():
            if not values:
                raise SettingsError(f"cells[{i}].{key} is an empty list")
        cells.append(axes)
    return tuple(cells) or ({},)


def without_user_axes(
    cells: Iterable[Mapping[str, tuple[Any, ...]]], user: Mapping[str, str]
) -> tuple[dict[str, tuple[Any, ...]], ...]:
    """Take the axes the user set on the command line out of the cells.

    user: key -> value as typed. Picking a group's option also takes out that group's settings, and keeps only the
    cells of this option where the file has any: the rates of a rival are not those of another.
    """
    groups = {key: value for key, value in user.items() if "." not in key}
    kept: Sequence[Mapping[str, tuple[Any, ...]]] = list(cells)
    for group, option in groups.items():
        naming = [cell for cell in kept if option in cell.get(group, ())]
        kept = naming or kept
    return tuple({key: values for key, values in cell.items() if not _is_set(key, user)} for cell in kept)


def expand(cells: Iterable[Mapping[str, tuple[Any, ...]]]) -> tuple[Axes, ...]:
    """Every combination of every cell, duplicates dropped; seeds outermost, then systems, then rates."""
    points: dict[tuple[tuple[str, str], ...], Axes] = {}
    seen: dict[str, list[Any]] = {key: [] for key in OUTER}
    for cell in cells:
        keys = sorted(cell, key=lambda key: OUTER.index(key) if key in OUTER else len(OUTER) + (key == INNER))
        for values in itertools.product(*(cell[key] for key in keys)):
            axes = dict(zip(keys, values, strict=True))
            points.setdefault(tuple(sorted((key, repr(value)) for key, value in axes.items())), axes)
            for key in OUTER:
                if axes.get(key) not in seen[key]:
                    seen[key].append(axes.get(key))
    # the sort is stable: inside a seed and system the settings and rates keep the order of the file
    return tuple(sorted(points.values(), key=lambda axes: [seen[key].index(axes.get(key)) for key in OUTER]))


def _is_set(axis: str, user: Collection[str]) -> bool:
    return axis in user or ("." in axis and axis.partition(".")[0] in user)

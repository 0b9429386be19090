"""The edge to Hydra, and the only file that knows it: command line and conf/ to plain mappings.

Inside a job of a run or sweep, `Job.compose` composes again for one point: the axes of a cell, with what the user
typed on top. Every mistake of a user comes out as SettingsError with one sentence.
"""

import copy
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from engine.core.command_line import INTERRUPTED_STATUS
from harness.assembly.reading import SettingsError, unknown_key

CONF = Path(__file__).resolve().parents[2] / "conf"
CONFIG_NAME = "config"
CHOICES = "_choices"
_LOAD_INTERPOLATED = re.compile(r"\$\{[^}]*\bload\.")
NAMED_GROUPS = ("system", "model", "device", "load", "protocol")
"""Groups whose option name is put into their settings as `name`."""

_UNKNOWN_KEY = re.compile(r"Could not override '([^']+)'\.")
_UNKNOWN_OPTION = re.compile(r"In '[^']+': Could not find '([^']+)'")
_NOISE = ("full_key", "object_type", "reference_type", "To append to your config", "See https://")

Config = dict[str, Any]


class Job:
    """One job: what the user typed, and the composition of its points.

    user: key -> value as typed, without Hydra's own. config: the composition without a cell.
    """

    def __init__(self, overrides: Sequence[str]) -> None:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        mine = [override for override in parsed if not override.key_or_group.startswith("hydra")]
        _refuse_mistyped(mine)
        self.overrides = tuple(str(override.input_line) for override in mine)
        self.user = {override.key_or_group: _value(override) for override in mine}
        self._composed: dict[tuple[str, ...], tuple[DictConfig, Config]] = {}
        self._load_is_used = False
        self.config = self.compose({})

    def compose(self, axes: Mapping[str, Any]) -> Config:
        """Everything resolved, for the axes of one point. Raises SettingsError."""
        options = tuple(sorted(f"{key}={value}" for key, value in axes.items() if "." not in key))
        with _as_settings_error():
            if options not in self._composed:
                whole, cells = self._composed[options] = _composition([*self.overrides, *options])
                self._load_is_used |= bool(_LOAD_INTERPOLATED.search(OmegaConf.to_yaml(whole) + str(cells)))
            whole, cells = self._composed[options]
            config = copy.deepcopy(whole)
            for key, value in axes.items():
                if "." in key:
                    _set(config, key, value)
            plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        assert isinstance(plain, dict)
        named = {str(key): value for key, value in plain.items() if key != CHOICES}
        return _named({**named, **cells}, plain[CHOICES])

    @property
    def load_stands_alone(self) -> bool:
        """Whether no other setting is made from those of the load, in what has been composed so far."""
        return not self._load_is_used


def main(work: Callable[[Job], int]) -> int:
    """Run `work` for the command line's job, or for each job of its sweep (`-m`). Returns the worst exit status.

    2 = a mistake in the settings, told in one sentence; the sweep's other jobs go on. None begins after an interrupt.
    """
    statuses: list[int] = []

    @hydra.main(version_base="1.3", config_path=str(CONF), config_name=CONFIG_NAME)
    def job(_: DictConfig) -> None:
        if INTERRUPTED_STATUS in statuses:
            return
        try:
            _refuse_parallel_launchers()
            made = Job(list(HydraConfig.get().overrides.task))
            statuses.append(work(made))
        except SettingsError as error:
            print(f"error: {error}", file=sys.stderr)
            statuses.append(2)

    # Else Hydra prints its own account of a mistake and exits with 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        sys.argv[1:] = _command_line(sys.argv[1:])
        with _as_settings_error():
            job()
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return max(statuses, default=0)


@contextmanager
def outside_hydra(conf: Path = CONF) -> Iterator[Callable[[Sequence[str]], Job]]:
    """Make jobs without a Hydra command line: for tests and for tools."""
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(conf), version_base="1.3"):
        yield _job


def _composition(overrides: Sequence[str]) -> tuple[DictConfig, Config]:
    """The composition, of Hydra's own part the options chosen; and the cells, whose ${...} belong to their points."""
    config = hydra.compose(CONFIG_NAME, list(overrides), True)
    OmegaConf.set_struct(config, False)
    config[CHOICES] = config.pop("hydra").runtime.choices
    cells = {key: config.pop(key) for key in ("cells",) if config.get(key) is not None}
    cells = {key: OmegaConf.to_container(cell) if OmegaConf.is_config(cell) else cell for key, cell in cells.items()}
    return config, cells


def options(group: str) -> tuple[str, ...]:
    """Names of a group's options."""
    return tuple(sorted(path.stem for path in (CONF / group).glob("*.yaml")))


def _job(overrides: Sequence[str]) -> Job:
    with _as_settings_error():
        return Job(overrides)


def _command_line(arguments: Sequence[str]) -> list[str]:
    """What was typed, in the order Hydra wants: its argparse takes no `-m` between two overrides. Raises SettingsError.

    Checked here too, since some mistakes end as a plain ValueError inside Hydra.
    """
    typed = [argument for argument in arguments if "=" in argument and not argument.startswith("-")]
    with _as_settings_error():
        _refuse_mistyped(OverridesParser.create().parse_overrides(typed))
    return sorted(arguments, key=lambda argument: argument not in ("-m", "--multirun"))


def _refuse_mistyped(overrides: Sequence[Override]) -> None:
    """An option that is no name, and two different options of one group: which was meant, nobody knows."""
    given: dict[str, Override] = {}
    for override in overrides:
        key, value = override.key_or_group, override.value()
        if not key:
            raise SettingsError(f"cannot read {override.input_line!r}: the name of a setting is missing before =")
        if "." in key or not (CONF / key).is_dir():
            continue
        names = value.list if isinstance(value, ChoiceSweep) else [value]
        if wrong := [name for name in names if isinstance(name, int | float)]:
            raise SettingsError(f"{key} has no option {wrong[0]}; it has: {', '.join(options(key))}")
        first = given.setdefault(key, override)
        if _value(first) != _value(override):
            raise SettingsError(f"{key} is given twice: {first.input_line} and {override.input_line}")


def _refuse_parallel_launchers() -> None:
    """They lose the exit status of their jobs, and measured points must not run side by side."""
    launcher = HydraConfig.get().runtime.choices.get("hydra/launcher", "basic")
    if launcher not in (None, "basic"):
        raise SettingsError(
            f"hydra/launcher={launcher}: use hydra/launcher=basic; each job runs its simulated points side by side"
            " (output.workers), and measured ones must run alone"
        )


def _value(override: Override) -> str:
    value = override.value()
    return str(value) if not isinstance(value, str) else value


def _set(config: DictConfig, key: str, value: Any) -> None:
    """Change a setting that exists; a new key is a mistake in the experiment file."""
    group, _, name = key.rpartition(".")
    node = OmegaConf.select(config, group)
    if not isinstance(node, DictConfig) or name not in node:
        raise SettingsError(unknown_key(key, [str(known) for known in node] if isinstance(node, DictConfig) else []))
    node[name] = OmegaConf.create(value) if isinstance(value, dict | list) else value


def _named(config: Config, choices: Mapping[Any, Any]) -> Config:
    for group in NAMED_GROUPS:
        if isinstance(config.get(group), dict):
            config[group]["name"] = choices[group]
    config["experiment"] = choices["experiment"]
    return config


@contextmanager
def _as_settings_error() -> Iterator[None]:
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise SettingsError(_sentence(error)) from error


def _sentence(error: Exception) -> str:
    """What Hydra says in several lines, in one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if match := _UNKNOWN_KEY.match(lines[0]):
        return f"unknown setting {match[1]}"
    if match := _UNKNOWN_OPTION.match(lines[0]):
        group, _, option = match[1].rpartition("/")
        has = f"; it has: {', '.join(options(group))}" if options(group) else ""
        return f"{group} has no option {option!r}{has}"
    kept = [line for line in lines if not line.startswith(_NOISE)]
    if isinstance(error, OverrideParseException):
        kept.insert(0, f"cannot read {error.override!r}:")
    if error.__cause__ is not None:
        kept += [line for line in str(error.__cause__).splitlines()[:1] if line not in kept]
    return "; ".join(kept).replace(":;", ":")

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
from harness.experiments.job_outcomes import JobOutcomes, Outcome, sweep_outcomes

CONF = Path(__file__).resolve().parents[2] / "conf"
CONFIG_NAME = "config"
BASIC = "basic"
"""Hydra's launcher that runs a sweep's jobs in this process, one after another."""
CHOICES = "_choices"
_LOAD_INTERPOLATED = re.compile(r"\$\{[^}]*\bload\.")
NAMED_GROUPS = ("system", "model", "device", "load", "protocol")
"""Groups whose option name is put into their settings as `name`."""

_UNKNOWN_KEY = re.compile(r"Could not override '([^']+)'\.")
_NO_LAUNCHER = re.compile(r"In 'hydra/launcher/([^']+)': Could not load 'hydra/launcher/([^']+)'")
_UNKNOWN_OPTION = re.compile(r"In '[^']+': Could not find '([^']+)'")
_NOISE = ("full_key", "object_type", "reference_type", "To append to your config", "See https://")

Config = dict[str, Any]


class Job:
    """One job: what the user typed, and the composition of its points.

    user: key -> value as typed, without Hydra's own. config: the composition without a cell.
    side_by_side: whether other jobs of its sweep may run at the same time.
    """

    def __init__(self, overrides: Sequence[str], *, side_by_side: bool = False) -> None:
        self.side_by_side = side_by_side
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

    2 = a mistake in the settings, told in one sentence; the sweep's other jobs go on, unless output.fail_fast is set.
    None begins after an interrupt. Launchers may run jobs in other processes, or on other machines.
    """
    # Else Hydra prints its own account of a mistake and exits with 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # Else Ray tells its makers how it is used.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        _require_folder()
        sys.argv[1:] = _command_line(sys.argv[1:])
        if not {"-m", "--multirun"} & set(sys.argv):
            return _run_jobs(work, None)
        with sweep_outcomes() as outcomes:
            return _run_jobs(work, outcomes)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _require_folder() -> None:
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise SettingsError("the folder this was started in is no longer there") from error


def _run_jobs(work: Callable[[Job], int], outcomes: JobOutcomes | None) -> int:
    statuses: list[int] = []
    started, argv, here = os.getpid(), list(sys.argv), Path.cwd()

    @hydra.main(version_base="1.3", config_path=str(CONF), config_name=CONFIG_NAME)
    def job(_: DictConfig) -> None:
        elsewhere = os.getpid() != started
        if elsewhere:
            sys.argv[:] = argv
            os.chdir(here)
        _run_job(work, statuses, outcomes if elsewhere else None)

    try:
        with _as_settings_error():
            job()
    except SettingsError:
        raise
    except Exception as error:
        if outcomes is None or _launcher() == BASIC:
            raise
        # A job whose process was killed, or never began: what its launcher says of it.
        print(f"error: a job of the sweep was lost: {type(error).__name__}: {error}", file=sys.stderr)
        statuses.append(1)
    for outcome in outcomes.ended() if outcomes is not None else []:
        statuses.append(outcome.status)
        if outcome.status:
            reason = outcome.reason or f"it ended with exit status {outcome.status}"
            print(f"error: job {outcome.number} ({outcome.settings}): {reason}", file=sys.stderr)
    return max(statuses, default=0)


def _run_job(work: Callable[[Job], int], statuses: list[int], outcomes: JobOutcomes | None) -> None:
    """One job, here or, with `outcomes`, in another process than the sweep's."""
    typed, reason = list(HydraConfig.get().overrides.task), ""
    before = [*statuses, *(outcome.status for outcome in (outcomes.ended() if outcomes else []))]
    if INTERRUPTED_STATUS in before:
        return
    try:
        job = Job(typed, side_by_side=_launcher() != BASIC)
        output = job.config.get("output")
        if any(before) and isinstance(output, dict) and output.get("fail_fast") is True:
            print(f"not begun, since a job before it failed: {' '.join(typed)}", file=sys.stderr)
            return
        status = work(job)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        status, reason = 2, str(error)
    statuses.append(status)
    if outcomes is not None:
        outcomes.add(Outcome(HydraConfig.get().job.num, " ".join(typed), status, reason))


def _launcher() -> str:
    """The launcher chosen; of the sweep as a whole what was typed, since Hydra knows it within jobs only."""
    if HydraConfig.initialized():
        return HydraConfig.get().runtime.choices.get("hydra/launcher") or BASIC
    typed = [argument.partition("=")[2] for argument in sys.argv if argument.startswith("hydra/launcher=")]
    return typed[-1] if typed else BASIC


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
    if match := _NO_LAUNCHER.match(lines[0]):
        return f"hydra/launcher={match[1]} needs {match[2]}, which `make env-sweeps` installs"
    if match := _UNKNOWN_OPTION.match(lines[0]):
        group, _, option = match[1].rpartition("/")
        has = f"; it has: {', '.join(options(group))}" if options(group) else ""
        return f"{group} has no option {option!r}{has}"
    kept = [line for line in lines if not line.startswith(_NOISE)]
    if isinstance(error, OverrideParseException):
        kept.insert(0, f"cannot read {error.override!r}:")
        key, equals, value = str(error.override).partition("=")
        # An exception's name is the parser's own word for a character it does not know.
        if equals and "'" not in value and "Exception" in kept[1]:
            return f"cannot read {error.override!r}; odd characters need quotes within the shell's: \"{key}='{value}'\""
    if error.__cause__ is not None:
        kept += [line for line in str(error.__cause__).splitlines()[:1] if line not in kept]
    return "; ".join(kept).replace(":;", ":")

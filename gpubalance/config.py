"""A configuration file: TOML tables whose keys are the flags of a command.

    [bench]                 # or [tool.gpubalance.bench], in a file that has a [tool] table
    nproc = 8
    inject = ["compute:rank=1,percent=20"]

    [thresholds]
    margin_warn = 5         # percent; both become bench's margin
    margin_fail = 10
    limit_warn = 70         # as in --threshold limit_warn=70, for every command that has it

    [baseline.save]         # a command of a command
    name = "before-the-update"

Everything in it is checked when it is read, whichever command runs: a name or a type that is wrong is an error.
"""

from __future__ import annotations

import difflib
import reprlib
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from gpubalance.errors import UsageError
from gpubalance.record.untrusted import read_bytes
from gpubalance.thresholds import BY_NAME, names_for, parse_thresholds, spelled

LARGEST_CONFIG_BYTES = 2**20
"""A file of settings has some hundred bytes; a larger one is something else."""

LARGEST_NUMBER = 2**63
"""No setting is larger, and Python refuses to print what is much larger."""

MARGIN = ("margin_warn", "margin_fail")
"""Keys of [thresholds] that are the margin: numbers in percent, as in `--margin 5:10`."""

WITH_MARGIN = ("bench", "selftest")
WITH_THRESHOLDS = ("bench", "probe", "selftest")

THRESHOLD = "threshold"
"""The option that takes all other keys of [thresholds]."""


class Kind(Enum):
    """What an option takes; the value says it in words."""

    FLAG = "true or false"
    WHOLE = "a whole number"
    NUMBER = "a number"
    TEXT = "text"
    TIME = "a time such as '90s', or a number of seconds"
    LIST = "text with commas, or a list of texts and whole numbers"
    MANY = "text, or a list of texts"


FlagValue = bool | int | float | str | list[str]
Known = Mapping[str, Mapping[str, Kind]]
"""Command -> option, spelled as in Python -> what it takes. `baseline.save` is a command of a command."""


@dataclass(frozen=True)
class Config:
    """The settings in a file, as flags would give them: command -> option -> value."""

    name: str
    commands: Mapping[str, Mapping[str, FlagValue]]


def read_config(path: Path, known: Known) -> Config:
    """Read and check a file. Raises UsageError that names the file, the key, and the name that was probably meant."""
    tables = _flat(path, _tables(path, _document(path)), known)
    thresholds = _thresholds(path, _table(path, "thresholds", tables.pop("thresholds", {})))
    commands: dict[str, dict[str, FlagValue]] = {}
    for name, table in tables.items():
        if name not in known:
            raise _no_table(path, name, table, known)
        commands[name] = _options(path, name, _table(path, name, table), known[name])
    for name in (name for name in WITH_MARGIN if name in known):
        _add_margin(path, thresholds, name, commands)
    for name in (name for name in WITH_THRESHOLDS if name in known):
        _add_thresholds(path, thresholds, name, commands)
    return Config(str(path), commands)


def as_flag(place: str, kind: Kind, value: object) -> FlagValue:
    """A value as the flag of this kind takes it. Raises UsageError that begins with the place and names both types."""
    if not _fits(kind, value):
        raise UsageError(f"{place} must be {kind.value}, not {_described(value)}")
    if isinstance(value, list | tuple):
        return as_flag(place, kind, ",".join(map(str, value))) if kind is Kind.LIST else list(value)
    if value == "" and kind is Kind.LIST:
        raise UsageError(f"{place} is empty", "leave it out where nothing is asked for")
    assert isinstance(value, bool | int | float | str)
    wrapped: dict[Kind, FlagValue] = {Kind.MANY: [str(value)], Kind.TIME: str(value)}
    return wrapped.get(kind, value)


def _fits(kind: Kind, value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER
    items = value if isinstance(value, list | tuple) else ()
    fits = {
        Kind.FLAG: isinstance(value, bool),
        Kind.WHOLE: number and isinstance(value, int),
        Kind.NUMBER: number,
        Kind.TEXT: isinstance(value, str),
        Kind.TIME: isinstance(value, str) or number,
        Kind.LIST: isinstance(value, str | list | tuple) and all(type(item) in (str, int) for item in items),
        Kind.MANY: isinstance(value, str | list | tuple) and all(isinstance(item, str) for item in items),
    }
    return fits[kind]


def _described(value: object) -> str:
    if isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER:
        return "a number out of range"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", dict: "a table"}
    name = names.get(type(value)) or ("a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}")
    return f"{name}: {reprlib.repr(value)}" if isinstance(value, int | float | str) else name


def _options(path: Path, command: str, table: Mapping[str, Any], known: Mapping[str, Kind]) -> dict[str, FlagValue]:
    """Keys may be spelled as flags are (`fail-on`) or as in Python (`fail_on`)."""
    options: dict[str, FlagValue] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            raise _unknown(path, f"key {command}.{key}", name, known)
        if name in options:
            raise UsageError(f"{path}: {command}.{name} is spelled in two ways", "keep one of them")
        options[name] = as_flag(f"{path}: {command}.{key}", known[name], value)
    return options


def _thresholds(path: Path, table: Mapping[str, Any]) -> dict[str, float]:
    """Keys may be spelled with dashes, as those of commands."""
    thresholds: dict[str, float] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in BY_NAME and name not in MARGIN:
            raise _unknown(path, f"key thresholds.{key}", name, (*MARGIN, *BY_NAME))
        if name in thresholds:
            raise UsageError(f"{path}: thresholds.{name} is spelled in two ways", "keep one of them")
        as_flag(f"{path}: thresholds.{key}", Kind.NUMBER, value)
        thresholds[name] = value
    return thresholds


def _margin(path: Path, thresholds: Mapping[str, float]) -> str | None:
    """`margin_warn` and `margin_fail` as `--margin` is spelled."""
    missing = [key for key in MARGIN if key not in thresholds]
    if len(missing) == 1:
        raise UsageError(f"{path}: thresholds.{missing[0]} is missing", "a margin is two numbers, to warn and to fail")
    return None if missing else ":".join(str(thresholds[key]) for key in MARGIN)


def _add_margin(
    path: Path, thresholds: Mapping[str, float], command: str, commands: dict[str, dict[str, FlagValue]]
) -> None:
    margin = _margin(path, thresholds)
    if margin is None:
        return
    options = commands.setdefault(command, {})
    if "margin" in options:
        raise UsageError(f"{path}: {command}.margin and [thresholds] say the same thing twice", "keep one of them")
    options["margin"] = margin


def _add_thresholds(
    path: Path, thresholds: Mapping[str, float], command: str, commands: dict[str, dict[str, FlagValue]]
) -> None:
    """Put what a command knows of them where its flag would be, before what the command's own table says."""
    texts = list(spelled({name: thresholds[name] for name in names_for(command) if name in thresholds}))
    if not texts:
        return
    own = commands.get(command, {}).get(THRESHOLD, [])
    assert isinstance(own, list)
    try:
        parse_thresholds([*texts, *own], command)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.next_step) from None
    commands.setdefault(command, {})[THRESHOLD] = [*texts, *own]


def _no_table(path: Path, name: str, value: object, known: Known) -> UsageError:
    owners = [f"[{command}]" for command, options in known.items() if name.replace("-", "_") in options]
    if owners and not isinstance(value, dict):
        return UsageError(f"{path}: key {name} stands in no table", f"it belongs below {' or '.join(owners)}")
    return _unknown(path, f"table [{name}]", name, [*known, "thresholds"])


def _unknown(path: Path, what: str, name: str, known: Collection[str]) -> UsageError:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose from: {', '.join(known)}"
    return UsageError(f"{path}: {what} is not known", hint)


def _tables(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    """The tables that are ours: all, or in a file that several tools share those below [tool.gpubalance]."""
    if "tool" not in document and path.name != "pyproject.toml":
        return document
    tool = _table(path, "tool", document.get("tool", {}))
    if "gpubalance" not in tool:
        raise UsageError(f"{path} has no table [tool.gpubalance]", "settings of bench stand in [tool.gpubalance.bench]")
    return dict(_table(path, "tool.gpubalance", tool["gpubalance"]))


def _flat(path: Path, tables: Mapping[str, Any], known: Known) -> dict[str, Any]:
    """Tables of a command's commands under the names that `known` has for them: `baseline.save`."""
    groups = {name.partition(".")[0] for name in known if "." in name}
    flat: dict[str, Any] = {}
    for name, table in tables.items():
        inner = _table(path, name, table) if name in groups else {}
        for key, value in inner.items():
            if not isinstance(value, dict):
                near = ", ".join(f"[{each}]" for each in known if each.startswith(f"{name}."))
                raise UsageError(f"{path}: key {name}.{key} stands in no table of a command", f"choose from: {near}")
            flat[f"{name}.{key}"] = value
        if name not in groups:
            flat[name] = table
    return flat


def _table(path: Path, name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {name} must be a table, not {_described(value)}")
    return value


def _document(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    data = read_bytes(path, LARGEST_CONFIG_BYTES, "file of settings")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None

"""`--config FILE` of every command: what a file may say, and how it reaches the options.

A file gives defaults (typer's default_map), so that a flag counts more than a variable, a variable more than the file,
and the file more than what the program would take by itself.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

from gpubalance.config import Config, FlagValue, Kind, read_config

SELF = "config"
"""The option itself: a file cannot name another file."""

KINDS = {bool: Kind.FLAG, int: Kind.WHOLE, float: Kind.NUMBER}
METAVARS = {"LIST": Kind.LIST, "TIME": Kind.TIME}


class FileDefaults(dict[str, Any]):
    """Defaults, and the name of the file that they come from."""

    def __init__(self, name: str, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.name = name


def known_options() -> dict[str, dict[str, Kind]]:
    """Every command and its options, as the functions behind them declare them; `baseline.save` is one."""
    from gpubalance.cli.app import app

    known = dict(_declared(app))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            known.update((f"{group.name}.{name}", options) for name, options in _declared(group.typer_instance))
    return known


def _declared(app: typer.Typer) -> Iterator[tuple[str, dict[str, Kind]]]:
    for command in app.registered_commands:
        if command.name and command.name != SELF and command.callback:
            yield command.name, options_of(command.callback)


def options_of(command: Callable[..., Any]) -> dict[str, Kind]:
    """Option -> what it takes; arguments are no options."""
    options = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if get_origin(parameter.annotation) is Annotated and name != SELF:
            hint, *extras = get_args(parameter.annotation)
            declared = next((extra for extra in extras if isinstance(extra, OptionInfo | ArgumentInfo)), None)
            if isinstance(declared, OptionInfo):
                options[name] = _kind(hint, declared.metavar)
    return options


def _kind(hint: Any, metavar: str | None) -> Kind:
    """Lists and times are text on the command line; their metavar tells them from other text."""
    types = [part for part in get_args(hint) or (hint,) if part is not NoneType]
    if get_origin(hint) is list or any(get_origin(part) is list for part in types):
        return Kind.MANY
    return KINDS.get(types[0]) or METAVARS.get(metavar or "", Kind.TEXT)


def use_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make a file's settings the defaults of this command, or of all commands when it stands before one."""
    if path is None:
        return None
    config = read_config(path, known_options())
    root = context.find_root()
    if context.info_name == SELF or context.parent is None:
        root.default_map = _nested(config)
    else:
        context.default_map = FileDefaults(config.name, dict(config.commands.get(name_of(context), {})))
    return path


def _nested(config: Config) -> FileDefaults:
    """As typer hands them down: command -> option, or command -> command of it -> option."""
    nested = FileDefaults(config.name, {})
    for name, options in config.commands.items():
        group, _, command = name.rpartition(".")
        place = nested.setdefault(group, FileDefaults(config.name, {})) if group else nested
        place[command] = FileDefaults(config.name, dict(options))
    return nested


def name_of(context: typer.Context) -> str:
    """The command as `known_options` names it: bench, baseline.save."""
    words: list[str] = []
    while context.parent is not None:
        words.insert(0, context.info_name or "")
        context = context.parent  # type: ignore[assignment]  # typer's own contexts have such parents
    return ".".join(words)


def file_of(context: typer.Context) -> str | None:
    """The name of the file that gives this context's defaults."""
    return context.default_map.name if isinstance(context.default_map, FileDefaults) else None


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings from a TOML file; flags and variables count more.",
        is_eager=True,  # before the options whose defaults it gives
        callback=use_config,
    ),
]


def with_config(command: Callable[..., FlagValue | None]) -> Callable[..., Any]:
    """The command with the option `--config`, which the function itself need not know of."""
    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter(SELF, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigOption)

    @functools.wraps(command)
    def configured(**values: Any) -> Any:
        values.pop(SELF)
        return command(**values)

    parameters = [*signature.parameters.values(), option]
    configured.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    configured.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return configured

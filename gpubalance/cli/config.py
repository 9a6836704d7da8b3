"""`gpubalance config`: checks a file of settings, and shows what every command would take, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubalance.cli.config_file import SELF, file_of, known_options
from gpubalance.cli.origins import DEFAULT, origin_of

if TYPE_CHECKING:
    from gpubalance.reports.fold import Line

HEADINGS = ("command", "setting", "value", "origin")
Shown = dict[str, dict[str, dict[str, Any]]]
"""Command -> setting -> value and origin."""


def config_command(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--show", help="Print every setting of each command and its origin.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The same as one JSON document.")] = False,
) -> int:
    """Check a file of settings; with --show, print what each command would take, and from where.

    Example: gpubalance config --show --config node.toml
    """
    from gpubalance.cli.output import write_lines
    from gpubalance.cli.stdout import write_stdout

    root: Any = context.find_root()
    shown, name = settings_of(root), file_of(root)
    if json:
        write_stdout(_document(shown, name).encode())
    else:
        write_lines(list(_lines(shown) if show else _summary(name)))
    return 0


def settings_of(root: Any) -> Shown:
    """What each command would take now. Raises UsageError for a variable that it could not read."""
    known = known_options()
    return {name: _settings(root, name, [*options, SELF]) for name, options in known.items()}


def _settings(root: Any, command: str, options: list[str]) -> dict[str, dict[str, Any]]:
    from gpubalance.errors import UsageError

    with ExitStack() as stack:
        made = root
        for word in command.split("."):
            # Arguments are missing here, and a value that is wrong becomes None instead of ending everything.
            inner = made.command.commands[word].make_context(word, [], parent=made, resilient_parsing=True)
            made = stack.enter_context(inner)
        settings = {
            option: {"value": _plain(made.params[option]), "origin": origin_of(made, option)} for option in options
        }
    for option, setting in settings.items():
        if setting["value"] is None and setting["origin"] != DEFAULT:
            raise UsageError(f"{setting['origin']} gives no right value for {option} of {command}")
    del settings[SELF]
    return settings


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _document(shown: Shown, name: str | None) -> str:
    return f"{json.dumps({'config': name, 'commands': shown}, allow_nan=False)}\n"


def _lines(shown: Shown) -> Iterator[Line]:
    from gpubalance.reports.fold import Line
    from gpubalance.reports.printable import printable
    from gpubalance.reports.rank_table import aligned

    rows = [
        (command, name, printable(_text(setting["value"])), printable(setting["origin"]))
        for command, settings in shown.items()
        for name, setting in settings.items()
    ]
    return (Line(text) for text in aligned([HEADINGS, *rows], names=len(HEADINGS)))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)


def _summary(name: str | None) -> Iterator[Line]:
    from gpubalance.reports.fold import Line
    from gpubalance.reports.printable import printable

    yield Line(f"{printable(name)}: every name and type in it is right" if name else "no file of settings is given")

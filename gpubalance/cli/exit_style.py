"""Which style of exit codes was asked for, where a command line could not be read and nobody parsed it to its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpubalance.errors import UsageError

STYLES = ("plain", "nagios")


def wants_nagios(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether wrong use must be UNKNOWN. As for every option a flag counts more than a variable, and that more than a
    file of settings; a word that is no style counts for nothing.
    """
    from gpubalance.cli.app import app

    names = [command.name for command in app.registered_commands]
    command = next((argument for argument in arguments if argument in names), None)
    return next((style for style in _styles(command, arguments, environment) if style in STYLES), None) == "nagios"


def _styles(command: str | None, arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[str | None]:
    yield _flag(arguments, "--exit-style")
    if command is None:
        return
    variables = f"GPUBALANCE_{command}".upper()
    yield environment.get(f"{variables}_EXIT_STYLE")
    files = (_flag(arguments, "--config"), environment.get(f"{variables}_CONFIG"), environment.get("GPUBALANCE_CONFIG"))
    file = next(filter(None, files), None)
    yield _in_file(Path(file), command) if file else None


def _flag(arguments: Sequence[str], option: str) -> str | None:
    """The last value given to it, in either spelling."""
    following = [*arguments, ""][1:]
    joined = f"{option}="
    values = [
        after if argument == option else argument.removeprefix(joined)
        for argument, after in zip(arguments, following, strict=True)
        if argument == option or argument.startswith(joined)
    ]
    return values[-1] if values else None


def _in_file(path: Path, command: str) -> str | None:
    from gpubalance.cli.config_file import known_options
    from gpubalance.config import read_config

    with suppress(UsageError):
        style = read_config(path, known_options()).commands.get(command, {}).get("exit_style")
        return style if isinstance(style, str) else None
    return None

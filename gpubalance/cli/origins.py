"""Where the value of each option came from, for the record."""

from __future__ import annotations

import typer

from gpubalance.cli.config_file import SELF, file_of

NAMES = {
    "workload": "workloads",
    "threshold": "thresholds",
    "budget": "budget_s",
    "stall_timeout": "stall_s",
    "sample_interval": "sample_interval_s",
}
"""Options whose setting has another name, because it carries a unit."""


DEFAULT = "default"


def origins_of(context: typer.Context) -> dict[str, str]:
    """Setting -> flag, the name of a variable, or file:NAME; defaults are left out."""
    names = [parameter.name or "" for parameter in context.command.params if parameter.name != SELF]
    origins = {NAMES.get(name, name): origin_of(context, name) for name in names}
    return {name: origin for name, origin in origins.items() if origin != DEFAULT}


def origin_of(context: typer.Context, option: str) -> str:
    """Where one option's value came from."""
    source = context.get_parameter_source(option)
    kind = source.name if source is not None else ""
    variable = f"{context.auto_envvar_prefix or ''}_{option}".upper()
    origins = {"COMMANDLINE": "flag", "ENVIRONMENT": variable, "DEFAULT_MAP": f"file:{file_of(context)}"}
    return origins.get(kind, DEFAULT)

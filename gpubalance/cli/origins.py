"""Where the value of each option came from, for the record."""

from __future__ import annotations

import typer

NAMES = {
    "workload": "workloads",
    "budget": "budget_s",
    "stall_timeout": "stall_s",
    "sample_interval": "sample_interval_s",
}
"""Options whose setting has another name, because it carries a unit."""


def origins_of(context: typer.Context) -> dict[str, str]:
    """Setting -> flag, the name of a variable, or default."""
    origins = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        kind = source.name if source is not None else "DEFAULT"
        if kind == "COMMANDLINE":
            origins[NAMES.get(name, name)] = "flag"
        elif kind == "ENVIRONMENT":
            prefix = context.auto_envvar_prefix or ""
            origins[NAMES.get(name, name)] = f"{prefix}_{name}".upper()
    return origins

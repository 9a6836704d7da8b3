"""`gpubalance schema`: the JSON Schema of a saved run, probe or selftest."""

from __future__ import annotations

from typing import Annotated

import typer


def schema_command(
    document: Annotated[str, typer.Argument(metavar="DOCUMENT", help="run, probe or selftest.")] = "run",
) -> int:
    """Print the JSON Schema (draft 2020-12) of what --json of bench, probe or selftest writes.

    Example: gpubalance schema probe > probe.schema.json
    """
    from gpubalance.cli.stdout import write_stdout
    from gpubalance.errors import ExitCode
    from gpubalance.reports.schema import schema_text

    write_stdout(schema_text(document).encode())
    return ExitCode.PASS

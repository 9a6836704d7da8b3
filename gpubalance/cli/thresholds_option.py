"""`--threshold NAME=VALUE` of bench and probe: what a flag or a variable says goes over a file's, name by name."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from gpubalance.cli.config_file import file_of
from gpubalance.cli.origins import origin_of, origins_of
from gpubalance.config import THRESHOLD
from gpubalance.thresholds import parse_thresholds, spelled


def thresholds_of(context: typer.Context, given: Sequence[str] | None) -> tuple[str, ...]:
    """All thresholds that were asked for, each name once. Raises UsageError for what is wrong on either side."""
    command = context.info_name
    asked = parse_thresholds(given or (), command, alone=False)
    return spelled({**parse_thresholds(_in_file(context), command, alone=False), **asked})


def origins_with_thresholds(context: typer.Context) -> dict[str, str]:
    """`origins_of`; thresholds that come from a file as well as from elsewhere name both, the weaker first."""
    origins, file = origins_of(context), f"file:{file_of(context)}"
    if _in_file(context) and origin_of(context, THRESHOLD) != file:
        origins["thresholds"] = f"{file}, {origins['thresholds']}"
    return origins


def _in_file(context: typer.Context) -> list[str]:
    return list((context.default_map or {}).get(THRESHOLD, ()))

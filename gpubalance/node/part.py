"""What one reader found of a record: values by field, and for each null its reason."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Part = tuple[dict[str, Any], dict[str, str]]


def merged(parts: Iterable[Part]) -> Part:
    """All parts as one."""
    values: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for found, reasons in parts:
        values |= found
        missing |= reasons
    return values, missing


def part(field: str, value: Any, reason: str = "not readable") -> Part:
    """One field; the reason counts where the value is null."""
    return {field: value}, ({field: reason} if value is None else {})


def error_name(error: OSError) -> str:
    """NO_PERMISSION where rights are missing, as NVML says it, else the name of the error, such as ENOENT."""
    if isinstance(error, PermissionError):
        return "NO_PERMISSION"
    return errno.errorcode.get(error.errno or 0, "not readable")


def names_in(folder: Path) -> list[str] | None:
    """Sorted names in a folder; None where it cannot be listed."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  (Path.iterdir makes paths that nobody needs here)
    except OSError:
        return None

"""Saving and loading of runs. A file is whole or it is not there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpubalance.errors import UsageError
from gpubalance.record.run import SCHEMA_VERSION, Run

LARGEST_BYTES = 200 * 2**20
"""No record of ours comes near; a larger file is something else."""


def state_folder(environment: Mapping[str, str]) -> Path | None:
    """Where runs are kept when nobody says where; None without a home (an unknown uid in a container)."""
    base = environment.get("XDG_STATE_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "gpubalance" / "runs"
    home = environment.get("HOME")
    return Path(home) / ".local/state/gpubalance/runs" if home and Path(home).is_absolute() else None


def check_writable(path: Path) -> None:
    """Raise UsageError when a file could not be written there, before anything is measured in vain."""
    if path.is_dir():
        raise UsageError(f"--out {path} is a folder", f"name a file, for example {path / 'run.json'}")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".gpubalance-"):
            pass
    except OSError as error:
        raise UsageError(f"--out {path} cannot be written: {error.strerror}") from None


def save_text(path: Path, text: str) -> None:
    """Write the file whole: to a temporary name beside it, then renamed. Raises OSError and leaves nothing behind."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def load_run(path: Path) -> Run:
    """The run in a saved document. Raises UsageError that says what is wrong with the file."""
    document = _document(path)
    version = document.get("schema_version")
    if not isinstance(version, int):
        raise UsageError(f"{path} is not a gpubalance run: it has no schema_version")
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"{path} has schema {version}, this gpubalance reads up to {SCHEMA_VERSION}", "update gpubalance"
        )
    try:
        return Run.model_validate(document.get("run"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path} is damaged: run.{where}: {first['msg']}") from None


def _document(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise UsageError(f"{path} has {size} bytes, no run is so large")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not a gpubalance run")
    return document

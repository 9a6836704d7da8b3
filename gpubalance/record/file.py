"""Saving and loading of runs. A file is whole or it is not there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from gpubalance.errors import UsageError
from gpubalance.record.base import Record
from gpubalance.record.consistency import contradiction
from gpubalance.record.probe import PROBE_SCHEMA_VERSION, Probe
from gpubalance.record.run import SCHEMA_VERSION, Run

R = TypeVar("R", bound=Record)

LARGEST_BYTES = 200 * 2**20
"""No record of ours comes near; a larger file is something else."""

_TEMPORARY = ".gpubalance-"


def state_folder(environment: Mapping[str, str]) -> Path | None:
    """Where runs are kept when nobody says where; None without a home (an unknown uid in a container)."""
    base = environment.get("XDG_STATE_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "gpubalance" / "runs"
    home = environment.get("HOME")
    return Path(home) / ".local/state/gpubalance/runs" if home and Path(home).is_absolute() else None


def check_writable(path: Path) -> None:
    """Raise UsageError when a file could not be written there, before anything is measured in vain."""
    try:
        if path.is_dir():
            raise UsageError(f"--out {path} is a folder", f"name a file, for example {path / 'run.json'}")
        if path.exists() and not path.is_file():  # root could put a file in the place of /dev/null
            raise UsageError(f"--out {path} is not a regular file", "the record goes to stdout with --json")
        with tempfile.NamedTemporaryFile(dir=_real(path).parent, prefix=_TEMPORARY):
            pass
    except OSError as error:
        raise UsageError(f"--out {path} cannot be written: {error.strerror}") from None


def save_text(path: Path, text: str) -> None:
    """Write the file whole: to a temporary name beside it, then renamed. Raises OSError and leaves nothing behind.
    A link is followed, not replaced.
    """
    target = _real(path)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=_TEMPORARY)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644 & ~_umask())
        Path(temporary).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def _real(path: Path) -> Path:
    """The file itself; Path.resolve raises where links form a loop."""
    return Path(os.path.realpath(path))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def load_run(path: Path) -> Run:
    """The run in a saved document; its parts fit together. Raises UsageError that says what is wrong with the file."""
    run = load_record(path)
    if not isinstance(run, Run):
        raise UsageError(f"{path} is a {run.kind}, not a bench run")
    return run


def load_record(path: Path) -> Run | Probe:
    """What a saved document holds, a run or a probe. Raises UsageError as `load_run` does."""
    document = _document(path)
    version = document.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise UsageError(f"{path} is not a gpubalance run: it has no schema_version")
    if "probe" in document:
        _check_version(path, version, PROBE_SCHEMA_VERSION)
        return _validated(path, Probe, document, "probe")
    _check_version(path, version, SCHEMA_VERSION)
    run = _validated(path, Run, document, "run")
    problem = contradiction(run)
    if problem is not None:
        raise UsageError(f"{path} is damaged: {problem}")
    return run


def _check_version(path: Path, version: int, known: int) -> None:
    if version > known:
        raise UsageError(f"{path} has schema {version}, this gpubalance reads up to {known}", "update gpubalance")


def _validated(path: Path, model: type[R], document: dict[str, Any], key: str) -> R:
    try:
        return model.model_validate(document.get(key))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in (key, *first["loc"]))
        raise UsageError(f"{path} is damaged: {where}: {first['msg']}") from None


def _document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)  # a size can lie: /dev/zero has none
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > LARGEST_BYTES:
        raise UsageError(f"{path} has more than {LARGEST_BYTES} bytes, no run is so large")
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not a gpubalance run")
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ in which of two equal keys they believe."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in values if keys.count(key) > 1)
        raise ValueError(f"key {twice!r} stands twice in one object")
    return values


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")

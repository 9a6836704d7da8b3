"""Saving and loading of runs. A file is whole or it is not there."""

from __future__ import annotations

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
from gpubalance.record.history import state_home
from gpubalance.record.probe import PROBE_SCHEMA_VERSION, Probe
from gpubalance.record.probe_consistency import probe_contradiction
from gpubalance.record.run import SCHEMA_VERSION, Run
from gpubalance.record.selftest import SELFTEST_SCHEMA_VERSION, Selftest
from gpubalance.record.selftest_consistency import selftest_contradiction
from gpubalance.record.untrusted import json_object, name_of, read_bytes, strange_number

R = TypeVar("R", bound=Record)

LARGEST_BYTES = 200 * 2**20
"""No record of ours comes near; a larger file is something else."""

A_FILE = "name a file; on stdout is the record with --json, a report with --report FORMAT=-"

_TEMPORARY = ".gpubalance-"


def state_folder(environment: Mapping[str, str]) -> Path | None:
    """Where runs are kept when nobody says where; None without a home (an unknown uid in a container)."""
    home = state_home(environment)
    return None if home is None else home / "runs"


def check_writable(path: Path, option: str = "--out") -> None:
    """Raise UsageError when a file could not be written there, before anything is measured in vain. The message begins
    with the option; one such as `--report html=` ends where the path begins.
    """
    place = f"{option}{path}" if option.endswith("=") else f"{option} {path}"
    if str(path) == "-":
        raise UsageError(f"{place} names no file", "--json prints the record on stdout")
    try:
        if path.is_dir():
            raise UsageError(f"{place} is a folder", A_FILE)
        if path.exists() and not path.is_file():  # root could put a file in the place of /dev/null
            raise UsageError(f"{place} is not a regular file", A_FILE)
        with tempfile.NamedTemporaryFile(dir=_real(path).parent, prefix=_TEMPORARY):
            pass
    except OSError as error:
        raise UsageError(f"{place} cannot be written: {error.strerror}", A_FILE) from None


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
    """The run in a saved document; its parts fit together. `-` is standard input.

    Raises UsageError that says what is wrong with the file.
    """
    return run_of(name_of(path), read_bytes(path, LARGEST_BYTES))


def run_of(name: str, data: bytes) -> Run:
    """The run in a document that was read already. Raises UsageError as `load_run` does."""
    run = record_of(name, data)
    if not isinstance(run, Run):
        raise UsageError(f"{name} is a {run.kind}, not a bench run")
    return run


def load_record(path: Path) -> Run | Probe:
    """What a saved document holds, a run or a probe. Raises UsageError as `load_run` does."""
    return record_of(name_of(path), read_bytes(path, LARGEST_BYTES))


def record_of(name: str, data: bytes) -> Run | Probe:
    """The run or probe in a document that was read already; `name` is what messages call it."""
    record = any_of(name, data)
    if isinstance(record, Selftest):
        raise UsageError(f"{name} is a selftest, not a run or a probe", "gpubalance report shows it")
    return record


def load_any(path: Path) -> Run | Probe | Selftest:
    """What a saved document holds, whichever command wrote it. Raises UsageError as `load_run` does."""
    return any_of(name_of(path), read_bytes(path, LARGEST_BYTES))


def any_of(name: str, data: bytes) -> Run | Probe | Selftest:
    """The record in a document that was read already."""
    document = json_object(name, data)
    version = document.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise UsageError(f"{name} is not a gpubalance run: it has no schema_version")
    record: Run | Probe | Selftest
    if "selftest" in document:
        _check_version(name, version, SELFTEST_SCHEMA_VERSION)
        record = _validated(name, Selftest, document, "selftest")
        problem = selftest_contradiction(record)
    elif "probe" in document:
        _check_version(name, version, PROBE_SCHEMA_VERSION)
        record = _validated(name, Probe, document, "probe")
        problem = probe_contradiction(record)
    else:
        _check_version(name, version, SCHEMA_VERSION)
        record = _validated(name, Run, document, "run")
        problem = contradiction(record)
    if record.schema_version != version:
        problem = f"it says schema {version} and {record.schema_version}"
    if problem is not None:
        raise UsageError(f"{name} is damaged: {problem}")
    return record


def _check_version(name: str, version: int, known: int) -> None:
    if version > known:
        raise UsageError(f"{name} has schema {version}, this gpubalance reads up to {known}", "update gpubalance")


def _validated(name: str, model: type[R], document: dict[str, Any], key: str) -> R:
    number = strange_number(document.get(key))
    if number is not None:
        raise UsageError(f"{name} is damaged: {number:g} is no number that anything measures")
    try:
        return model.model_validate(document.get(key))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in (key, *first["loc"]))
        raise UsageError(f"{name} is damaged: {where}: {first['msg']}") from None

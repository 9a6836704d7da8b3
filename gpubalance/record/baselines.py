"""Baselines: the facts of runs that later ones are held against. A file a run, a few kB; the runs of one baseline lie
in one folder, so that saving is writing one new file and two that save at once do not meet.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from gpubalance.errors import CannotMeasureError, UsageError
from gpubalance.record.base import Record
from gpubalance.record.file import save_text
from gpubalance.record.run import ModelSpec

DEFAULT_NAME = "default"

Metric = Literal["score", "step", "compute", "exposed", "busbw", "gemm", "memory_copy", "h2d", "d2h", "memory", "p2p"]


class Collective(Record):
    """Which collective a bandwidth belongs to."""

    name: str
    mode: str
    placement: str = "in_place"
    dtype: str
    size_bytes: int


class Fact(Record):
    """One number of a run. Units: score in points of 100, times in ms, bandwidths in GB/s (1e9), gemm in TFLOP/s,
    memory in bytes.
    """

    metric: Metric
    device: int | None = None
    """Index into `Setup.devices`; null when the number is about the run."""
    collective: Collective | None = None
    value: float
    low: float | None = None
    high: float | None = None
    """95 % interval by the noise within the run; null when there is one value only."""


class SetupDevice(Record):
    """A device that took part."""

    name: str
    uuid: str | None = None
    nvml_index: int | None = None
    power_limit_w: float | None = None


class Setup(Record):
    """Under what a run measured."""

    backend: Literal["nccl", "gloo"]
    devices: list[SetupDevice]
    cpu_model: str | None = None
    workloads: list[str]
    model: ModelSpec
    global_batch: int
    per_rank_batch: int
    versions: dict[str, str | None]
    """driver, torch, cuda, nccl."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables of NCCL."""


class SavedRun(Record):
    """What is kept of one run."""

    schema_version: Literal[1] = 1
    kind: Literal["baseline"] = "baseline"
    run_id: str
    started_at: str
    gpubalance_version: str
    verdict: str
    injected: list[str] = Field(default_factory=list)
    interrupted_by: int | None = None
    setup: Setup
    facts: list[Fact]


@dataclass(frozen=True)
class Baseline:
    """The runs saved for one key and name, oldest first."""

    key: str
    name: str
    runs: tuple[SavedRun, ...]


def key_of(setup: Setup) -> str:
    """What later runs must share to be held against this one: the devices (sorted UUIDs; CPU model and number of ranks
    without a GPU), the workloads, the model and the batch. Versions are compared and no part of it.
    """
    devices: object = sorted(str(device.uuid) for device in setup.devices)
    if setup.backend == "gloo":
        devices = [setup.cpu_model, len(setup.devices)]
    shared = [devices, sorted(setup.workloads), setup.model.model_dump(), setup.global_batch, setup.per_rank_batch]
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:12]


def checked_name(name: str) -> str:
    """The name of a baseline, which is also that of a folder. Raises UsageError."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", name) is None:
        raise UsageError(f"{name!r} is no name for a baseline", "use letters, digits, dots, dashes: before-update")
    return name


def save_baseline(home: Path, name: str, saved: SavedRun) -> Path:
    """Add a run to the baseline of its key; the same run again replaces itself. Raises CannotMeasureError when it
    cannot be written.
    """
    digest = hashlib.sha256(saved.run_id.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    path = _folder(home, key_of(saved.setup), name) / f"{digest}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_text(path, json.dumps(saved.model_dump(mode="json", exclude_none=True), allow_nan=False) + "\n")
    except OSError as error:
        raise CannotMeasureError(f"the baseline could not be saved to {path}: {error.strerror}") from None
    return path


def load_baseline(home: Path, key: str, name: str) -> Baseline:
    """The runs that were saved; none is no error. Raises UsageError that names a damaged file."""
    runs = [_load(path) for path in sorted(_folder(home, key, name).glob("*.json"))]
    runs.sort(key=lambda saved: (saved.started_at, saved.run_id))
    return Baseline(key, name, tuple(runs))


def all_baselines(home: Path) -> list[Baseline]:
    """Everything that was saved, by key and name."""
    folders = sorted(path for path in (home / "baselines").glob("*/*") if path.is_dir())
    found = [load_baseline(home, folder.parent.name, folder.name) for folder in folders]
    return [baseline for baseline in found if baseline.runs]


def saved_names(home: Path) -> list[tuple[str, str]]:
    """Key and name of all baselines, whether they can be read or not."""
    return sorted((path.parent.name, path.name) for path in (home / "baselines").glob("*/*") if path.is_dir())


def forget_baseline(home: Path, key: str, name: str) -> None:
    """Delete a baseline. Raises CannotMeasureError when that cannot be done."""
    folder = _folder(home, key, name)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise CannotMeasureError(f"{folder} could not be deleted: {error.strerror}") from None


def _folder(home: Path, key: str, name: str) -> Path:
    return home / "baselines" / key / checked_name(name)


def _contradiction(saved: SavedRun) -> str | None:
    """What types cannot say: devices that exist, and times that others are divided by."""
    count = len(saved.setup.devices)
    for fact in saved.facts:
        if fact.device is not None and not 0 <= fact.device < count:
            return f"facts name device {fact.device}, the setup has {count}"
        if fact.metric == "compute" and not fact.value > 0:
            return f"a compute time is {fact.value:g}, it must be above 0"
    return None


def _load(path: Path) -> SavedRun:
    try:
        saved = SavedRun.model_validate(json.loads(path.read_bytes()))
        problem = _contradiction(saved)
        if problem is None:
            return saved
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        problem = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    except (ValueError, RecursionError) as error:
        problem = f"not JSON: {error}"
    raise UsageError(f"{path} is damaged: {problem}", "delete that file, or gpubalance baseline forget")

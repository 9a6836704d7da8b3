"""What the parent tells a crew of ranks: one JSON file, named in each rank's environment.

It is made of plain types only, so that a rank reads it without pydantic.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpubalance.record.collectives import CollectiveOptions

JOB_VARIABLE = "GPUBALANCE_JOB"
LISTEN_VARIABLE = "GPUBALANCE_LISTEN_FD"
PARENT_VARIABLE = "GPUBALANCE_PARENT_PID"


@dataclass(frozen=True)
class Slot:
    """Where one rank works: a CUDA ordinal in its own view, or CPU cores it owns alone."""

    device: int
    """Index into the plan's devices."""
    ordinal: int | None
    uuid: str | None
    cores: tuple[int, ...]
    bus_id: str | None = None
    """Where the device sits on the PCI bus: 0000:5e:00.0."""


@dataclass(frozen=True)
class Job:
    """One crew's work. `slots[r]` is where rank r works."""

    attempt: int
    crew: str
    """ranks (one process a device) or node (one process that sees all devices)."""
    device: str
    """cuda or cpu."""
    backend: str
    slots: tuple[Slot, ...]
    phases: tuple[str, ...]
    model: dict[str, Any]
    global_batch: int
    per_rank_batch: int
    faults: tuple[dict[str, Any], ...]
    budget_s: float | None
    group_timeout_s: float
    log_folder: str
    seed: int
    passes: tuple[tuple[dict[str, Any], ...], ...] = ()
    """Faults of each short pass of the phase `passes`, in order; they stand in place of `faults` there."""
    pass_overlapped: bool = True
    """Whether each of these passes measures the real, overlapped step rate as well."""
    pass_replayed: bool = True
    """Whether each replays its step as a CUDA graph, by which causes are told."""
    pass_blocks: int = 24
    pass_steps: int = 20
    """Fenced blocks of each, and steps of a block."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that a rank sets before it imports torch."""
    touch_bytes: tuple[int, ...] = ()
    """Sizes of the touch phase's all-reduces."""
    collectives: CollectiveOptions = field(default_factory=CollectiveOptions)

    def log_path(self, rank: int) -> Path:
        """Where rank writes its log."""
        return Path(self.log_folder) / f"{self.crew}-{self.attempt}-rank{rank}.jsonl"

    def death_path(self, rank: int) -> Path:
        """Where the parent of a rank that another parent follows tells how the rank ended."""
        return Path(self.log_folder) / f"{self.crew}-{self.attempt}-rank{rank}.death.jsonl"

    def output_path(self, rank: int) -> Path:
        """Where everything else that rank prints is kept."""
        return Path(self.log_folder) / f"{self.crew}-{self.attempt}-rank{rank}.txt"

    def stack_path(self, rank: int) -> Path:
        """Where rank writes its stacks when it is asked for them."""
        return Path(self.log_folder) / f"{self.crew}-{self.attempt}-rank{rank}.stack.txt"

    def save(self, path: Path) -> None:
        """Write the job as JSON."""
        path.write_text(json.dumps(asdict(self), allow_nan=False))

    @classmethod
    def load(cls, path: Path) -> Job:
        """Read a job that `save` wrote."""
        values = json.loads(path.read_text())
        values["slots"] = tuple(Slot(**{**slot, "cores": tuple(slot["cores"])}) for slot in values["slots"])
        values["phases"] = tuple(values["phases"])
        values["faults"] = tuple(values["faults"])
        values["passes"] = tuple(tuple(faults) for faults in values.get("passes", ()))
        values["touch_bytes"] = tuple(values["touch_bytes"])
        options = values["collectives"]
        lists = {name: tuple(options[name]) for name in ("sizes", "names")}
        values["collectives"] = CollectiveOptions(**{**options, **lists})
        return cls(**values)

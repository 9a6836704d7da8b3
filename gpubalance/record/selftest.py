"""One selftest: short passes of the ddp phase, healthy and with faults played on purpose, in one document.

What was measured and what was played stand apart: whoever judges a pass is given the first and not the second.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubalance.record.base import Record
from gpubalance.record.node import Node
from gpubalance.record.run import Phase, Plan, Run, RunError, Setting, Skipped
from gpubalance.record.samples import Samples, SensorHealth
from gpubalance.record.timings import DdpAttempt, DeviceProbe, RankInfo, RankMemory

SELFTEST_SCHEMA_VERSION = 1


class Pass(Record):
    """What one pass measured; nothing in it says what was played."""

    number: int
    crew: int
    """Which set of processes measured it: the attempt of `ranks` that they have."""
    begin_s: float
    end_s: float
    phases: list[Phase] = Field(default_factory=list)
    ddp: DdpAttempt
    memory: list[RankMemory] = Field(default_factory=list)
    samples: Samples = Field(default_factory=Samples)


class Played(Record):
    """What was played in the pass of this number."""

    number: int
    row: str
    """Name of the row, as `--rows` takes it."""
    title: str
    """The same for people, with its size: compute +20 %."""
    faults: list[str]
    """As `--inject` spells them; empty in a healthy pass."""
    ranks: list[int]
    """Ranks that they were played on."""
    again: bool = False
    """The second look at a row that came out wrong, or a healthy pass beside one."""


class Selftest(Record):
    """Everything one `selftest` measured and played."""

    schema_version: int = SELFTEST_SCHEMA_VERSION
    kind: Literal["selftest"] = "selftest"
    gpubalance_version: str
    selftest_id: str
    started_at: str
    """UTC, ISO 8601."""
    duration_s: float
    seed: int
    """Drew the ranks; the same seed draws them again."""
    settings: dict[str, Setting]
    node: Node
    plan: Plan
    ranks: list[RankInfo] = Field(default_factory=list)
    probes: list[DeviceProbe] = Field(default_factory=list)
    passes: list[Pass] = Field(default_factory=list)
    """Passes that were finished."""
    played: list[Played] = Field(default_factory=list)
    """Passes that were planned."""
    sensor: SensorHealth | None = None
    errors: list[RunError] = Field(default_factory=list)
    skipped: list[Skipped] = Field(default_factory=list)
    """Rows that could not be played here, and why."""
    interrupted_by: int | None = None
    """Number of the signal that ended it early."""

    def run_of(self, measured: Pass) -> Run:
        """One pass as if it were a run of its own, which is all that is known to whoever judges it."""
        return Run(
            gpubalance_version=self.gpubalance_version,
            run_id=f"{self.selftest_id}.{measured.number}",
            started_at=self.started_at,
            duration_s=max(0.0, measured.end_s - measured.begin_s),
            settings={name: self.settings[name] for name in ("margin", "thresholds") if name in self.settings},
            node=self.node,
            plan=self.plan,
            ranks=[info.model_copy(update={"attempt": 0}) for info in self.ranks if info.attempt == measured.crew],
            phases=measured.phases,
            ddp=[measured.ddp],
            probes=self.probes,
            memory=measured.memory,
            samples=measured.samples,
        )

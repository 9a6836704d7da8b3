"""One run: everything that one command measured, in one document.

Times called t_s, begin_s or end_s are seconds since `started_at`, on the monotonic clock of the machine.
A value that was not measured is null, and a reason stands beside it; it is never 0.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubalance.record.against import Against
from gpubalance.record.base import Record
from gpubalance.record.experiment import Experiment
from gpubalance.record.hang import Bisection, HangReport
from gpubalance.record.links import Links
from gpubalance.record.node import Device, Node, Scalar
from gpubalance.record.samples import Samples
from gpubalance.record.timings import (
    CollectiveRow,
    DataParallelResult,
    DdpAttempt,
    DeviceProbe,
    NcclFacts,
    RankInfo,
    RankMemory,
    SoloResult,
)

SCHEMA_VERSION = 1
"""Raised when a reader of the old form would misread the new one; additions do not raise it."""


class Setting(Record):
    """A value that steered the run, and where it came from."""

    value: Scalar | list[Scalar]
    origin: str


class ModelSpec(Record):
    """The model that ranks train, sized to the smallest device."""

    kind: Literal["mlp", "transformer"]
    width: int
    layers: int
    dtype: Literal["bfloat16", "float16", "float32"]
    parameters: int


class Plan(Record):
    """What was decided before anything started."""

    backend: Literal["nccl", "gloo"]
    launcher: str
    devices: list[Device]
    """Devices that take part; rank r of the first attempt works on devices[r]."""
    global_batch: int
    per_rank_batch: int
    model: ModelSpec
    workloads: list[str]
    notes: list[str] = Field(default_factory=list)
    """Things the user should know about the plan, such as a stray RANK that was ignored."""


class Phase(Record):
    """A named stretch of the run."""

    name: str
    attempt: int
    begin_s: float
    end_s: float | None
    """Null when the phase never ended."""


class RunError(Record):
    """Something that went wrong. `first_cause` marks the one that the others follow from."""

    kind: str
    """exception, out_of_memory, killed, exited, stalled, absent, stuck, no_cuda, sensor, interrupted, internal."""
    where: Literal["work", "collective", "launch", "sensor", "parent"]
    message: str
    rank: int | None = None
    phase: str | None = None
    attempt: int = 0
    t_s: float | None = None
    first_cause: bool = False
    detail: str | None = None
    """Traceback or the last lines that the process printed."""


class Skipped(Record):
    """A workload or measurement that did not run, and why."""

    what: str
    reason: str


class Clocks(Record):
    """Seconds from the start of a run to its end, by three clocks of the machine. All durations of a record are by the
    monotonic one, which stands still while the machine is suspended.
    """

    monotonic_s: float
    wall_s: float
    """Time of day; whoever sets the clock moves it."""
    boottime_s: float | None
    """The monotonic clock and the time for which the machine was suspended; null where there is no such clock."""


class Run(Record):
    """Everything one `bench` measured."""

    schema_version: int = SCHEMA_VERSION
    kind: Literal["bench"] = "bench"
    gpubalance_version: str
    run_id: str
    started_at: str
    """UTC, ISO 8601."""
    duration_s: float
    settings: dict[str, Setting]
    node: Node
    plan: Plan
    ranks: list[RankInfo] = Field(default_factory=list)
    phases: list[Phase] = Field(default_factory=list)
    ddp: list[DdpAttempt] = Field(default_factory=list)
    solo: list[SoloResult] = Field(default_factory=list)
    probes: list[DeviceProbe] = Field(default_factory=list)
    collectives: list[CollectiveRow] = Field(default_factory=list)
    nccl: NcclFacts | None = None
    """Null when its log was not read; see `skipped` for why."""
    data_parallel: DataParallelResult | None = None
    links: Links | None = None
    memory: list[RankMemory] = Field(default_factory=list)
    samples: Samples = Field(default_factory=Samples)
    injected: list[str] = Field(default_factory=list)
    """Faults that were played on purpose; such a run never stands for the node's state."""
    errors: list[RunError] = Field(default_factory=list)
    hang: HangReport | None = None
    """What was gathered when ranks made no progress any more."""
    bisection: Bisection | None = None
    """What fresh processes showed after a hang, or after an error that was raised in a collective."""
    experiments: list[Experiment] = Field(default_factory=list)
    """What `--what-if` measured."""
    skipped: list[Skipped] = Field(default_factory=list)
    clocks: Clocks | None = None
    """Null in older runs."""
    shared_with: str | None = None
    """Who else was measuring on this machine when the run began, by --force."""
    against: Against | None = None
    """What `--baseline` held the run against; null when nothing was asked for, and in older runs."""
    interrupted_by: int | None = None
    """Number of the signal that ended the run early."""

"""Records of what the sensor saw while the ranks worked."""

from __future__ import annotations

from pydantic import Field

from gpubalance.record.base import Record

Column = list[float | int | None]


class DeviceSamples(Record):
    """Columns of one device, or of one rank's process where there is no GPU; all as long as the ticks."""

    device: int
    columns: dict[str, Column]
    missing: dict[str, str] = Field(default_factory=dict)
    """Column -> why it is absent or null."""


class CounterReading(Record):
    """Counters of one device at the edge of a phase; what counts is the change between two edges."""

    t_s: float
    edge: str
    device: int
    values: dict[str, int | float | None]
    missing: dict[str, str] = Field(default_factory=dict)


class XidEvent(Record):
    """An Xid that NVML reported during the run: the driver's own word that something went wrong on a GPU."""

    t_s: float
    nvml_index: int | None
    xid: int


class ProcessMemory(Record):
    """Device memory of one process, the largest value seen in the run."""

    device: int
    pid: int
    rank: int | None
    """Rank of this run that owns the pid; null for a foreign process."""
    memory_used_bytes: int | None
    first_seen_s: float | None = None
    last_seen_s: float | None = None
    """The first and the last look that listed it; null in older runs. The list is read once a second."""


class QuotaReading(Record):
    """How often the CPU quota of this control group stopped its processes, since the group exists."""

    t_s: float
    periods: int
    throttled: int
    """Periods in which processes were stopped because the quota was used up."""


class SensorHealth(Record):
    """How well the sensor itself did: a late sensor is a busy host."""

    interval_s: float
    ticks: int
    missed_ticks: int
    lateness_mean_ms: float | None = None
    lateness_max_ms: float | None = None
    cost_ms_per_tick: float | None = None
    """Time spent reading, a tick."""
    hung_in: str | None = None
    """The call and device that never answered."""
    died_with: str | None = None
    """Exit code and last line of a sensor that ended by itself; samples stop there."""
    last_words: str | None = None
    """More of what such a sensor printed."""
    xid_missing: str | None = None
    """Why Xid events could not be listened for."""


class Samples(Record):
    """All samples of a run, as columns on one time axis."""

    t_s: list[float] = Field(default_factory=list)
    devices: list[DeviceSamples] = Field(default_factory=list)
    counters: list[CounterReading] = Field(default_factory=list)
    xids: list[XidEvent] = Field(default_factory=list)
    processes: list[ProcessMemory] = Field(default_factory=list)
    quota: list[QuotaReading] = Field(default_factory=list)
    """At the edges of phases; empty without a quota, and in older runs."""
    health: SensorHealth | None = None

"""From everything that was gathered to one record."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpubalance import __version__
from gpubalance.launch.collect import Measured
from gpubalance.record.experiment import Experiment
from gpubalance.record.hang import Bisection, HangReport
from gpubalance.record.node import Node
from gpubalance.record.run import Plan, Run, RunError, Setting, Skipped
from gpubalance.record.timings import DdpAttempt, NcclFacts
from gpubalance.sampling.client import SensorProcess
from gpubalance.sampling.collect import collect_samples
from gpubalance.session.clocks import ClockMark, clock_mark
from gpubalance.settings import BenchSettings, Margin


@dataclass
class Gathered:
    """What is known so far; it survives failures and interruptions."""

    started_at: datetime
    start_s: float
    """Start on the monotonic clock, to which all times of the record are relative."""
    measured: list[Measured] = field(default_factory=list)
    errors: list[RunError] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    pids: dict[int, int] = field(default_factory=dict)
    """Process -> rank, over all attempts."""
    hang: HangReport | None = None
    bisection: Bisection | None = None
    experiments: list[Experiment] = field(default_factory=list)
    interrupted_by: int | None = None
    shared_with: str | None = None
    """Who else was measuring when this run began."""
    began: ClockMark = field(default_factory=clock_mark)
    nccl: NcclFacts | None = None

    @property
    def ddp(self) -> DdpAttempt | None:
        """The first attempt of the ddp phase, if there is one."""
        return next((m.ddp for m in self.measured if m.ddp is not None), None)

    def skip(self, what: str, reason: str) -> None:
        """Note that something did not run."""
        self.skipped.append(Skipped(what=what, reason=reason))


def assemble_run(
    settings: BenchSettings,
    node: Node,
    plan: Plan,
    gathered: Gathered,
    sensor: SensorProcess,
) -> Run:
    """The record."""
    measured = gathered.measured
    return Run(
        gpubalance_version=__version__,
        run_id=f"{gathered.started_at:%Y-%m-%dT%H-%M-%S}-{secrets.token_hex(3)}",
        started_at=gathered.started_at.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - gathered.start_s, 2),
        settings=_settings(settings),
        node=node,
        plan=plan,
        ranks=[info for m in measured for info in m.ranks],
        phases=[phase for m in measured for phase in m.phases],
        ddp=[m.ddp for m in measured if m.ddp is not None],
        solo=[solo for m in measured for solo in m.solo],
        probes=[probe for m in measured for probe in m.probes],
        collectives=[row for m in measured for row in m.collectives],
        nccl=gathered.nccl,
        data_parallel=next((m.data_parallel for m in measured if m.data_parallel is not None), None),
        links=next((m.links for m in measured if m.links is not None), None),
        memory=[memory for m in measured[:1] for memory in m.memory],
        samples=collect_samples(
            sensor.events,
            start_s=gathered.start_s,
            interval_s=settings.sample_interval_s,
            rank_of_pid=gathered.pids,
            hung_in=sensor.hung_in,
            died_with=sensor.died_with,
            last_words=sensor.last_words,
        ),
        injected=[fault.spelled() for fault in settings.inject],
        errors=gathered.errors,
        hang=gathered.hang,
        bisection=gathered.bisection,
        experiments=gathered.experiments,
        skipped=[*gathered.skipped, *(skip for m in measured for skip in m.skipped)],
        clocks=gathered.began.until(clock_mark()),
        shared_with=gathered.shared_with,
        interrupted_by=gathered.interrupted_by,
    )


def _settings(settings: BenchSettings) -> dict[str, Setting]:
    """Every setting with its origin; faults and margins as they are spelled."""
    values: dict[str, object] = {name: getattr(settings, name) for name in settings.__dataclass_fields__}
    values["inject"] = [fault.spelled() for fault in settings.inject]
    if isinstance(settings.margin, Margin):
        values["margin"] = [settings.margin.warn, settings.margin.fail]
    return recorded(values, settings.origins)


def recorded(values: Mapping[str, object], origins: Mapping[str, str]) -> dict[str, Setting]:
    """Settings as the record keeps them: value and origin."""
    return {
        name: Setting.model_validate(
            {
                "value": list(value) if isinstance(value, tuple) else value,
                "origin": origins.get(name, "default"),
            }
        )
        for name, value in values.items()
        if name != "origins"
    }

"""Runs one crew from start to end: orders, processes, sensor edges, outcome. No process is left behind."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpubalance.errors import Interrupted
from gpubalance.launch.collect import Events, Measured, collect_measured
from gpubalance.launch.follow import CrewOutcome, Follower
from gpubalance.launch.launcher_env import Share
from gpubalance.launch.start import end_ranks, job_path, release, start_ranks
from gpubalance.node.nccl_conf import variables_of_files
from gpubalance.record.hang import Bisection
from gpubalance.record.job import Job
from gpubalance.record.rank_log import Event
from gpubalance.record.run import RunError
from gpubalance.sampling.client import SensorProcess
from gpubalance.session.assemble import Gathered
from gpubalance.session.bisect import bisect, is_suspect, no_bisection
from gpubalance.session.display import Display
from gpubalance.session.experiments import P2P, run_p2p
from gpubalance.session.share import Orders


def pass_edge(attempt: int, number: int, *, begin: bool) -> str:
    """Name of a pass's edge, at which the sensor reads its counters."""
    return f"pass {attempt}.{number} {'begin' if begin else 'end'}"


Collect = Callable[[Job, Events, float], list[Measured]]


def _whole(job: Job, events: Events, start_s: float) -> list[Measured]:
    return [collect_measured(job, events, start_s)]


@dataclass
class CrewRunner:
    """Everything that is the same for all crews of a run; what they measure adds up in `gathered`."""

    share: Share
    environment: Mapping[str, str]
    module: str
    sensor: SensorProcess
    orders: Orders
    display: Display
    stall_s: float
    gathered: Gathered
    bisect: str = "never"
    """auto, or never: whether the cause of a hang is searched for in fresh processes."""
    collect: Collect = _whole
    """What is made of the ranks' lines when a crew has ended."""
    _held: dict[str, dict[int, subprocess.Popen[bytes]]] = field(default_factory=dict)
    _begun: set[tuple[str, int]] = field(default_factory=set)
    _blocks: int = 0

    def hold(self, job: Job) -> None:
        """Start the process of a node job now: it imports torch while others do, and `run` finds it ready."""
        self._held[job.crew] = start_ranks(job, [0], self.environment, self.module, own_store=True, held=True)

    def end(self) -> None:
        """End the processes whose turn never came."""
        for processes in self._held.values():
            end_ranks(processes)

    def run(self, job: Job) -> None:
        """Start the crew, follow it to its end and kill what is left.

        What was measured is kept in any case. Raises Interrupted after that when a signal came meanwhile.
        """
        adopted = self.share.rank is not None and job.crew == "ranks"
        own = [0] if adopted or job.crew == "node" else list(range(len(job.slots)))
        own_store = not adopted or not self.share.has_store
        processes = self._held.pop(job.crew, {})
        try:
            if not processes:
                processes = start_ranks(job, own, self.environment, self.module, own_store=own_store)
            release(processes)
            if adopted:
                self.orders.crew(job_path(job))
            follower = Follower(
                job, processes, self.stall_s, lambda rank, event: self._on_event(job, rank, event),
                environment=self.environment,
            )  # fmt: skip
            try:
                outcome = follower.follow()
            except Interrupted:
                follower.poll()
                self._keep(job, CrewOutcome(follower.events(), []))
                raise
            self._keep(job, outcome)
        finally:
            if adopted:
                self.orders.stop()
            for pid in end_ranks(processes):
                self.gathered.errors.append(
                    RunError(
                        kind="stuck",
                        where="launch",
                        message=f"pid {pid} sits in the kernel and cannot be killed",
                    )
                )
        self._explain(job, outcome)

    def _explain(self, job: Job, outcome: CrewOutcome) -> None:
        """Find out more about a crew that got stuck, once its processes are gone and its devices free."""
        if outcome.complete or not is_suspect(outcome.errors[0]):
            return
        first = outcome.errors[0]
        self.display.say(f"rank {first.rank} {first.message}" if first.rank is not None else first.message)
        reason = no_bisection(job, outcome.hang, self.share, self.bisect)
        if any(error.kind == "stuck" for error in self.gathered.errors):
            reason = "a process could not be killed and still holds its device"
        self.gathered.bisection = Bisection(left_out=reason or "interrupted")
        if reason is None:
            self.gathered.bisection = bisect(job, self.environment, self.module, self.gathered.pids, self.display.say)

    def experiment(self, job: Job) -> None:
        """Measure what peer-to-peer is worth between the devices of this job."""
        found = {**self.environment, **variables_of_files(Path("/"), self.environment)}.get(P2P)
        say, pids = self.display.say, self.gathered.pids
        self.gathered.experiments.append(run_p2p(job, self.environment, found, self.module, pids, say))

    def _keep(self, job: Job, outcome: CrewOutcome) -> None:
        start_s = self.gathered.start_s
        self.gathered.measured += self.collect(job, outcome.events, start_s)
        for error in outcome.errors:
            t_s = None if error.t_s is None else round(error.t_s - start_s, 4)
            self.gathered.errors.append(error.model_copy(update={"t_s": t_s}))
        if outcome.hang is not None:
            silent = self.sensor.hung_in if self.sensor.is_hung() else None
            update = {"t_s": round(outcome.hang.t_s - start_s, 4), "driver_silent": silent}
            self.gathered.hang = outcome.hang.model_copy(update=update)

    def _on_event(self, job: Job, rank: int, event: Event) -> None:
        name = event["event"]
        if name == "hello":
            self.gathered.pids[event["pid"]] = rank
            self.sensor.set_ranks({rank: event["pid"]})
        elif name == "phase_begin" and (event["phase"], job.attempt) not in self._begun:
            self._begun.add((event["phase"], job.attempt))
            self._blocks = 0
            self.display.phase(event["phase"], job.attempt)
            self.sensor.edge(f"{event['phase']} begin")
        elif name == "phase_end" and rank == 0:
            self.sensor.edge(f"{event['phase']} end")
        elif name in ("pass_begin", "pass_end") and rank == 0:
            self.sensor.edge(pass_edge(job.attempt, event["number"], begin=name == "pass_begin"))
        elif name in ("block", "overlapped") and rank == 0:
            self._blocks += 1
            self.display.advance(self._blocks)

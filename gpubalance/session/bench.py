"""`gpubalance bench`: can this node train evenly? The whole story, top to bottom.

look at the node -> plan -> ranks (solo, ddp, collectives) -> look again if somebody seems slow beside the others, or
beside what it used to be -> read NCCL's log where the links are the question -> one process that sees all devices
(links, data_parallel) -> one record -> facts, findings, verdict.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from gpubalance.analysis.facts import attempt_facts
from gpubalance.checks.bandwidth import needs_nccl_log
from gpubalance.checks.straggler import needs_confirmation
from gpubalance.checks.verdict import Judgement, judge
from gpubalance.child import die_with_parent, end_with_launcher
from gpubalance.errors import Interrupted
from gpubalance.launch.cores import seen_by_all
from gpubalance.launch.launcher_env import Share, detect_share
from gpubalance.launch.lock import MeasuringLock
from gpubalance.launch.plan import choose_kind, make_plan
from gpubalance.launch.signals import interruptible
from gpubalance.launch.start import RANK_MODULE, child_environment
from gpubalance.node.nccl_conf import variables_of_files
from gpubalance.record.job import Job
from gpubalance.record.node import Node
from gpubalance.record.run import Plan, Run
from gpubalance.sampling.client import SensorProcess
from gpubalance.session.assemble import Gathered, assemble_run
from gpubalance.session.crew import CrewRunner
from gpubalance.session.display import Display, Silent
from gpubalance.session.jobs import asks_for_all, first_job, node_job, rotated_job
from gpubalance.session.nccl_log import logging_job, read_logs, why_not_logged
from gpubalance.session.share import Orders, cores_of_ranks, serve
from gpubalance.session.workspace import goes_on, workspace
from gpubalance.settings import CPU_MARGIN, GPU_MARGIN, BenchSettings
from gpubalance.thresholds import Gates, parse_thresholds

Doubt = Callable[[Run], bool]
"""Whether a run that has made its first pass would fail by something that nobody sees in the run itself."""

ROTATED = "looking once more in fresh processes, ranks rotated"


@dataclass(frozen=True)
class Finished:
    """The record of a run and what it means."""

    run: Run
    judgement: Judgement


def bench(
    settings: BenchSettings,
    display: Display | None = None,
    doubt: Doubt | None = None,
    *,
    module: str = RANK_MODULE,
    stand_in: Path | None = None,
) -> Finished | None:
    """Run the benchmark. None: this process owned one rank under a launcher, and another one reports.

    `doubt` is asked after a first pass in which nobody fails beside the others; if it doubts, a second pass follows.
    `module` is what a rank runs, `stand_in` a profile of a stand-in NVML; both are for tests and demonstrations.
    Raises UsageError, CannotMeasureError or BusyError when nothing could be started, Interrupted when a signal came
    before there was anything to keep.
    """
    launcher = os.getppid()
    share = detect_share(os.environ, settings.launcher, settings.nproc, in_shell=_typed())
    with interruptible(), _as_share(share, launcher), workspace(share) as folder:
        if not share.reports:
            serve(share, folder, module, launcher, goes_on)
            return None
        if share.rank is not None:
            end_with_launcher(launcher)
        with _alone(settings) as other, _orders(folder, share) as orders:
            return _measure(settings, display or Silent(), doubt, share, folder, orders, module, stand_in, other)


@contextmanager
def _as_share(share: Share, launcher: int) -> Iterator[None]:
    """A parent that does not report ends with its launcher from now on: it may wait long for the others."""
    if not share.reports:
        die_with_parent(launcher)
    yield


def _typed() -> bool:
    """True where somebody typed the command: tasks of a step have no terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


@contextmanager
def _alone(settings: BenchSettings) -> Iterator[str | None]:
    """Hold the lock, or with --force know who else does."""
    lock = MeasuringLock()
    other = lock.acquire(force=settings.force)
    try:
        yield other
    finally:
        lock.release()


@contextmanager
def _orders(folder: Path, share: Share) -> Iterator[Orders]:
    orders = Orders(folder, share)
    try:
        yield orders
    finally:
        orders.end()


def _measure(
    settings: BenchSettings,
    display: Display,
    doubt: Doubt | None,
    share: Share,
    folder: Path,
    orders: Orders,
    module: str,
    stand_in: Path | None,
    shared_with: str | None,
) -> Finished:
    gathered = Gathered(datetime.now(timezone.utc), time.monotonic(), shared_with=shared_with)
    sensor = SensorProcess(folder, settings.sample_interval_s, child_environment(os.environ, ()), stand_in, ways=True)
    try:
        node, masks = _with_files(sensor.node()), []
        if choose_kind(node, settings) == "cpu":
            masks = cores_of_ranks(share, folder, node.cpu_cores)
            node = seen_by_all(node, masks)
        plan, skipped = make_plan(node, settings, share, masks)
        gathered.skipped += skipped
        display.plan(plan, node)
        uuids = [device.uuid for device in plan.devices if device.uuid is not None]
        runner = CrewRunner(
            share=share, environment=child_environment(os.environ, uuids), module=module, sensor=sensor, orders=orders,
            display=display, stall_s=settings.stall_s, gathered=gathered, bisect=settings.bisect,
        )  # fmt: skip
        sensor.begin([d.nvml_index for d in plan.devices if d.nvml_index is not None], range(len(plan.devices)))
        try:
            _run_crews(
                settings, plan, folder, runner, doubt, lambda: assemble_run(settings, node, plan, gathered, sensor)
            )
        except Interrupted as interrupted:
            gathered.interrupted_by = interrupted.signal_number
        finally:
            runner.end()
    finally:
        sensor.stop()
    run = assemble_run(settings, node, plan, gathered, sensor)
    return Finished(run, judge(run))


def _with_files(node: Node) -> Node:
    """NCCL's files set variables as well, and explain what is measured as the environment does."""
    return node.model_copy(update={"environment": {**node.environment, **variables_of_files(Path("/"), os.environ)}})


def _run_crews(
    settings: BenchSettings,
    plan: Plan,
    folder: Path,
    runner: CrewRunner,
    doubt: Doubt | None,
    so_far: Callable[[], Run],
) -> None:
    gathered = runner.gathered
    job = first_job(settings, plan, folder, os.environ)
    node = node_job(job, plan)
    if job.phases:
        if node.phases:
            runner.hold(node)
        runner.run(job)
    suspicion = None if gathered.errors else _suspicion(settings, plan, runner, lambda: bool(doubt and doubt(so_far())))
    if suspicion is not None:
        runner.display.say(f"{suspicion}: {ROTATED}")
        runner.run(rotated_job(job))
    if plan.backend == "nccl" and "collectives" in job.phases and not gathered.errors:
        _read_log(settings, job, runner, so_far)
    if node.phases and not gathered.errors:
        runner.run(node)
    _skip_unreached(gathered, node)
    for name in settings.what_if:
        if gathered.errors:
            gathered.skip(f"what-if {name}", "an earlier phase failed")
        else:
            runner.experiment(job)


def _skip_unreached(gathered: Gathered, job: Job) -> None:
    """After a failure: what never began."""
    begun = {phase.name for measured in gathered.measured for phase in measured.phases}
    for name in job.phases if gathered.errors else ():
        if name not in begun:
            gathered.skip(name, "an earlier phase failed")


def _read_log(settings: BenchSettings, job: Job, runner: CrewRunner, so_far: Callable[[], Run]) -> None:
    """Fresh processes cost some seconds, most of them the import of torch: worth it when the links are the question, or
    when a bandwidth is not what it should be and the algorithm may explain it.
    """
    if not asks_for_all(settings) and not needs_nccl_log(so_far()):
        runner.gathered.skip("NCCL's log", "no bandwidth is below its gate")
        return
    reason = why_not_logged(os.environ)
    if reason is not None:
        runner.gathered.skip("NCCL's log", reason)
        return
    logging = logging_job(job, os.environ)
    runner.run(logging)
    runner.gathered.nccl = read_logs(logging, runner.gathered.measured[-1])
    if runner.gathered.nccl is None:
        runner.gathered.skip("NCCL's log", "NCCL wrote no line into it")


def _suspicion(settings: BenchSettings, plan: Plan, runner: CrewRunner, doubts: Callable[[], bool]) -> str | None:
    """What a second pass has to confirm before anybody says that the node fails."""
    attempt = runner.gathered.ddp
    if attempt is None:
        return None
    on_cpu = plan.backend == "gloo"
    margin = settings.margin or (CPU_MARGIN if on_cpu else GPU_MARGIN)
    gates = Gates(parse_thresholds(settings.thresholds), on_cpu=on_cpu)
    facts = attempt_facts(attempt, margin.warn, margin.fail, on_cpu=on_cpu, gates=gates, devices=plan.devices)
    if needs_confirmation(facts):
        return "somebody seems slow"
    return "slower than it used to be" if doubts() else None

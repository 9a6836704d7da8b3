"""`gpubalance selftest`: does the tool name known faults on this very node? The whole story, top to bottom.

look at the node -> plan -> a crew of healthy passes, by which faults are sized -> a crew that plays the matrix, a pass
each -> rows that came out wrong once more in fresh processes -> one record -> each pass judged without what was played,
then compared.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from gpubalance.analysis.facts import attempt_facts
from gpubalance.checks.selftest.rows import check_row_names
from gpubalance.checks.selftest.verdict import SelftestJudgement, judge_selftest, wrong_passes
from gpubalance.errors import CannotMeasureError, Interrupted
from gpubalance.faults import Fault, parse_fault
from gpubalance.launch.collect import Events, Measured, collect_measured, collect_passes
from gpubalance.launch.launcher_env import Share
from gpubalance.launch.lock import MeasuringLock
from gpubalance.launch.plan import make_plan
from gpubalance.launch.signals import interruptible
from gpubalance.launch.start import RANK_MODULE, child_environment
from gpubalance.record.job import Job
from gpubalance.record.node import Node
from gpubalance.record.run import Plan
from gpubalance.record.selftest import Played, Selftest
from gpubalance.sampling.client import SensorProcess
from gpubalance.session.assemble import Gathered
from gpubalance.session.crew import CrewRunner
from gpubalance.session.display import Display, Silent
from gpubalance.session.jobs import first_job
from gpubalance.session.selftest_plan import Here, healthy_passes, matrix, once_more, schedule
from gpubalance.session.selftest_record import assemble_selftest
from gpubalance.session.selftest_story import Story
from gpubalance.session.share import Orders
from gpubalance.session.workspace import workspace
from gpubalance.settings import BenchSettings, SelftestSettings
from gpubalance.thresholds import Gates, parse_thresholds

SAMPLE_INTERVAL_S = 0.1
HEALTHY_FIRST = 2
"""Healthy passes that faults are sized by; the first one also warms the devices."""

BESIDE_QUICK, BESIDE = 2, 1
"""Faults between two healthy passes."""

QUICK_BATCH = 4
"""A quick selftest trains on the planned batch divided by this."""

QUICK_BLOCKS = 14
"""Of a pass. Of 14 blocks 13 must agree before anybody is named (with two to eight ranks; of 24 it is 19 or 20): one
that something else disturbed is forgiven."""


@dataclass(frozen=True)
class Selftested:
    """The record of a selftest and what it means."""

    record: Selftest
    judgement: SelftestJudgement


def selftest(
    settings: SelftestSettings,
    display: Display | None = None,
    *,
    module: str = RANK_MODULE,
    stand_in: Path | None = None,
) -> Selftested:
    """Run the selftest. `module` and `stand_in` are for tests, as in `bench`.

    Raises UsageError, CannotMeasureError or BusyError when nothing could be started, Interrupted when a signal came
    before there was anything to keep.
    """
    check_row_names(settings.rows or ())
    with interruptible(), workspace(Share("own")) as folder, _alone(settings):
        return _measure(settings, display or Silent(), folder, module, stand_in)


@contextmanager
def _alone(settings: SelftestSettings) -> Iterator[None]:
    lock = MeasuringLock()
    lock.acquire(force=settings.force)
    try:
        yield
    finally:
        lock.release()


def _measure(
    settings: SelftestSettings, display: Display, folder: Path, module: str, stand_in: Path | None
) -> Selftested:
    gathered = Gathered(datetime.now(timezone.utc), time.monotonic())
    environment = child_environment(os.environ, ())
    sensor = SensorProcess(folder, SAMPLE_INTERVAL_S, environment, stand_in)
    share = Share("own")
    try:
        node = sensor.node()
        plan = _plan(settings, node, share)
        seed = settings.seed if settings.seed is not None else secrets.randbelow(2**31)
        story = Story(settings, node, plan, seed, gathered)
        display.plan(plan, node)
        uuids = [device.uuid for device in plan.devices if device.uuid is not None]
        runner = CrewRunner(
            share=share, environment=child_environment(os.environ, uuids), module=module, sensor=sensor,
            orders=Orders(folder, share), display=_Stages(display), stall_s=settings.stall_s, gathered=gathered,
            collect=_collect,
        )  # fmt: skip
        sensor.begin([d.nvml_index for d in plan.devices if d.nvml_index is not None], range(len(plan.devices)))
        try:
            _play(story, runner, folder, sensor)
        except Interrupted as interrupted:
            gathered.interrupted_by = interrupted.signal_number
    finally:
        sensor.stop()
    record = assemble_selftest(story, sensor)
    return Selftested(record, judge_selftest(record))


class _Stages:
    """The display of a bench, for crews that are no second looks at the first one."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self.plan, self.say, self.advance = display.plan, display.say, display.advance

    def phase(self, name: str, attempt: int) -> None:
        """A phase begins; that of finding each other is told once."""
        if name != "join" or attempt == 0:
            self._display.phase(name, 0)


def _plan(settings: SelftestSettings, node: Node, share: Share) -> Plan:
    """As a bench of the ddp phase would plan it; a quick selftest takes a smaller batch."""
    plan, _ = make_plan(node, bench_settings(settings), share)
    if not settings.quick:
        return plan
    smaller = max(1, plan.per_rank_batch // QUICK_BATCH) * len(plan.devices)
    return make_plan(node, bench_settings(settings, batch=smaller), share)[0]


def bench_settings(settings: SelftestSettings, batch: int | None = None) -> BenchSettings:
    """The settings of a bench that would measure what a pass measures."""
    return BenchSettings(
        nproc=settings.nproc,
        devices=settings.devices,
        device=settings.device,
        workloads=("ddp",),
        batch=batch,
        margin=settings.margin,
        thresholds=settings.thresholds,
        force=settings.force,
        stall_s=settings.stall_s,
        sample_interval_s=SAMPLE_INTERVAL_S,
    )


def _collect(job: Job, events: Events, start_s: float) -> list[Measured]:
    """The crew as a whole (its ranks, what was skipped), then its passes."""
    return [collect_measured(job, events, start_s), *collect_passes(job, events, start_s)]


def _play(story: Story, runner: CrewRunner, folder: Path, sensor: SensorProcess) -> None:
    """All crews, until one fails."""
    generator = random.Random(story.seed)
    if len(story.plan.devices) < 2:
        here = Here(1, story.plan.backend, story.margin, healthy_ms=1.0)
        story.skipped = matrix(here, quick=story.settings.quick, wanted=story.settings.rows, generator=generator)[1]
        return
    _crew(story, runner, folder, 0, healthy_passes(HEALTHY_FIRST, first=0))
    if runner.gathered.errors:
        return
    sensor.catch_up()
    here = replace(_here(story), pids_known=_pids_known(assemble_selftest(story, sensor)))
    _crew(story, runner, folder, 1, _all_passes(story, here, runner.display, generator))
    if runner.gathered.errors:
        return
    sensor.catch_up()
    wrong = wrong_passes(assemble_selftest(story, sensor))
    if wrong:
        runner.display.say(f"not right: {', '.join(each.title for each in wrong)}; once more in fresh processes")
        again = [once_more(each) for each in wrong if each.faults]
        passes = schedule(again, first=len(story.played), beside=1, again=True)
        fewer = len(wrong) - 2 * len(again) - 1  # each healthy pass with a name is looked at again as well
        passes += healthy_passes(max(0, fewer), first=len(story.played) + len(passes), again=True)
        _crew(story, runner, folder, 2, passes)


def _all_passes(story: Story, here: Here, display: Display, generator: random.Random) -> list[Played]:
    """The matrix as often as it was asked for, on ranks drawn anew and in mixed order from the second time on, then
    further healthy passes.
    """
    settings, known = story.settings, len(story.played)
    passes: list[Played] = []
    for turn in range(settings.repeat):
        rows, story.skipped = matrix(here, quick=settings.quick, wanted=settings.rows, generator=generator)
        if turn > 0:
            generator.shuffle(rows)
        passes += schedule(rows, first=known + len(passes), beside=BESIDE_QUICK if settings.quick else BESIDE)
    passes += healthy_passes(settings.healthy, first=known + len(passes))
    display.say(f"{sum(bool(each.faults) for each in passes)} faults in {len(passes)} passes, seed {story.seed}")
    return passes


def _pids_known(record: Selftest) -> bool:
    """Whether the driver counts processes as this machine does; in a container it may not."""
    return any(process.rank is not None for each in record.passes for process in each.samples.processes)


def _here(story: Story) -> Here:
    """Sizes by the last healthy pass: the first one still warmed the devices."""
    attempts = [measured.ddp for measured in story.gathered.measured if measured.ddp is not None]
    if not attempts:
        raise CannotMeasureError("no healthy pass was finished", "run gpubalance bench, which tells more")
    margin, on_cpu = story.margin, story.plan.backend == "gloo"
    gates = Gates(parse_thresholds(story.settings.thresholds), on_cpu=on_cpu)
    facts = attempt_facts(attempts[-1], margin.warn, margin.fail, on_cpu=on_cpu, gates=gates)
    return Here(
        ranks=len(story.plan.devices),
        backend=story.plan.backend,
        margin=margin,
        healthy_ms=min(facts.compute_ms),
        step_ms=facts.balance.step_ms,
        transient_warn=gates.pair("transient")[0],
    )


def _crew(story: Story, runner: CrewRunner, folder: Path, attempt: int, passes: list[Played]) -> None:
    """Play these passes in processes of their own."""
    for place, each in enumerate(passes):
        story.numbers[attempt, place] = each.number
    story.played += passes
    job = first_job(bench_settings(story.settings), story.plan, folder)
    faults = tuple(tuple(_values(parse_fault(text)) for text in each.faults) for each in passes)
    blocks = QUICK_BLOCKS if story.settings.quick else job.pass_blocks
    phases = ("solo", "passes") if attempt == 0 and _is_probed(story) else ("passes",)
    runner.run(replace(job, attempt=attempt, phases=phases, passes=faults, pass_blocks=blocks))


def _is_probed(story: Story) -> bool:
    """Whether causes are told with the probes of each device alone, as in a bench; a quick selftest has no time."""
    return story.plan.backend == "nccl" and not story.settings.quick


def _values(fault: Fault) -> dict[str, object]:
    return asdict(fault)

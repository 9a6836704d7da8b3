"""After a hang, or an error of all ranks in a collective: fresh processes find the smallest set of devices that fails
and the switch that cures it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from gpubalance.launch.launcher_env import Share
from gpubalance.record.hang import Bisection, BisectTrial, HangReport, is_halted
from gpubalance.record.job import Job
from gpubalance.record.run import RunError
from gpubalance.session.bisect_plan import (
    Trial,
    cures_of,
    next_trials,
    smallest_failing,
    switches_for,
    was_repeated,
)
from gpubalance.session.trial import SMALL_SIZES, run_together, touch_job

LIMIT_S = 300.0
"""For the whole search (ours): five trials of at most 30 s over all devices, and on eight GPUs seven rounds of pairs,
of which only one that fails takes longer than its start.
"""

Say = Callable[[str], None]


def no_bisection(job: Job, hang: HangReport | None, share: Share, wanted: str) -> str | None:
    """Why the cause of a hang is not searched for, or None."""
    halted = [rank.rank for rank in hang.ranks if is_halted(rank)] if hang is not None else []
    if wanted == "never":
        return "--bisect never was given"
    if halted:
        return f"the process of rank {halted[0]} was stopped from outside"
    if job.crew == "node" or len(job.slots) < 2:
        return "one process alone waits for no other rank"
    if share.rank is not None:
        return f"ranks belong to {share.launcher}; gpubalance bench without it can search"
    return None


def is_suspect(first: RunError) -> bool:
    """Whether the first cause may lie between the ranks: a hang, or an error that was raised in a collective."""
    return first.kind in ("stalled", "absent") or (first.kind == "exception" and first.where == "collective")


def bisect(job: Job, environment: Mapping[str, str], module: str, pids: dict[int, int], say: Say) -> Bisection:
    """Search, at most LIMIT_S long. `environment` is what the hung ranks were started with."""
    until_s = time.monotonic() + LIMIT_S
    world = len(job.slots)
    switches = switches_for(job.backend, environment)
    done: list[BisectTrial] = []
    left_out = None
    say(f"searching for the cause in fresh processes, at most {LIMIT_S:g} s")
    while trials := next_trials(world, switches, done):
        if time.monotonic() > until_s:
            left_out = f"the search ended after {LIMIT_S:g} s"
            break
        fresh = _run(job, trials, len(done), environment, module, until_s, pids)
        for trial in fresh:
            say(f"  {trial_words(trial)}")
        done += fresh
        if any(trial.outcome == "unfinished" for trial in fresh):
            left_out = f"the search ended after {LIMIT_S:g} s"
            break
    smallest = smallest_failing(world, done)
    return Bisection(
        trials=done,
        repeated=was_repeated(world, done),
        smallest=smallest,
        cures=cures_of(smallest, done) if smallest is not None else [],
        left_out=left_out,
    )


def _run(
    job: Job,
    trials: Sequence[Trial],
    number: int,
    environment: Mapping[str, str],
    module: str,
    until_s: float,
    pids: dict[int, int],
) -> list[BisectTrial]:
    jobs = [
        touch_job(job, trial.ranks, number + place, _variables(trial), SMALL_SIZES)
        for place, trial in enumerate(trials)
    ]
    return [
        BisectTrial(
            ranks=list(trial.ranks),
            switch=trial.switch,
            outcome=touched.outcome,
            message=touched.message,
            seconds=touched.seconds,
        )
        for trial, touched in zip(trials, run_together(jobs, environment, module, until_s, pids), strict=True)
    ]


def _variables(trial: Trial) -> dict[str, str]:
    if trial.switch is None:
        return {}
    name, _, value = trial.switch.partition("=")
    return {name: value}


def trial_words(trial: BisectTrial) -> str:
    """One trial as a line of progress."""
    how = trial.switch or "as is"
    return f"ranks {', '.join(map(str, trial.ranks))}, {how}: {trial.outcome} ({trial.seconds:.0f} s)"

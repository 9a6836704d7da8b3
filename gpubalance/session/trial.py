"""Tiny crews of fresh processes: all-reduces of a few sizes, checked, with other variables than the run's own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

from gpubalance.launch.follow import CrewOutcome, Follower
from gpubalance.launch.start import end_ranks, start_ranks
from gpubalance.record.job import Job
from gpubalance.record.rank_log import Event

KIB, MIB = 2**10, 2**20
SMALL_SIZES = (KIB, MIB, 32 * MIB)
"""NCCL's three ways of sending (LL, LL128, Simple) are all met."""

STALL_S = 15.0
"""How long a crew that has started may make no progress; healthy ones make some every second."""

FIRST_ATTEMPT = 1000
"""Numbers of trials, which are also names of their logs, begin far above those of looks."""

Outcome = Literal["works", "hangs", "fails", "wrong", "unfinished"]


@dataclass(frozen=True)
class Touched:
    """How one crew of a trial ended."""

    outcome: Outcome
    message: str | None
    seconds: float
    rows: list[Event]
    """Touch lines of rank 0."""


def touch_job(job: Job, ranks: Sequence[int], number: int, variables: Mapping[str, str], sizes: Sequence[int]) -> Job:
    """Trial `number` on the devices that these ranks of the job had."""
    return replace(
        job,
        attempt=FIRST_ATTEMPT + number,
        crew="ranks",
        slots=tuple(job.slots[rank] for rank in ranks),
        phases=("touch",),
        faults=(),
        environment={**job.environment, **variables},
        touch_bytes=tuple(sizes),
    )


def run_together(
    jobs: Sequence[Job], environment: Mapping[str, str], module: str, until_s: float, pids: dict[int, int]
) -> list[Touched]:
    """Run the jobs at the same time, on devices that they do not share; leaves no process behind.

    Every pid is noted in `pids` with its rank. At `until_s` (monotonic) whoever is not done is unfinished.
    """
    began_s = time.monotonic()
    with ExitStack() as stack:
        followers = []
        for job in jobs:
            processes = start_ranks(job, range(len(job.slots)), environment, module, own_store=True)
            stack.callback(end_ranks, processes)
            pids.update({process.pid: rank for rank, process in processes.items()})
            followers.append(Follower(job, processes, STALL_S, _ignore, until_s=until_s))
        return [_touched(follower.follow(), time.monotonic() - began_s, until_s) for follower in followers]


def _ignore(_rank: int, _event: Event) -> None:
    """Trials show nothing while they run."""


def _touched(outcome: CrewOutcome, seconds: float, until_s: float) -> Touched:
    rows = [event for event in outcome.events.get(0, ()) if event["event"] == "touch"]
    state, message = _judged(outcome, rows, out_of_time=time.monotonic() > until_s)
    return Touched(state, message, round(seconds, 2), rows)


def _judged(outcome: CrewOutcome, rows: Sequence[Event], *, out_of_time: bool) -> tuple[Outcome, str | None]:
    first = outcome.errors[0] if outcome.errors else None
    if first is not None:
        who = f"rank {first.rank} " if first.rank is not None else ""
        if first.kind != "stalled":
            return "fails", f"{who}{first.message}"
        return ("unfinished", "no time was left for it") if out_of_time else ("hangs", f"{who}{first.message}")
    wrong = sum(row["wrong_elements"] for row in rows)
    if wrong:
        return "wrong", f"{wrong} elements of the sums were wrong"
    return "works", None

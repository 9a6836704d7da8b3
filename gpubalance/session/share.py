"""Parents that own one rank under a launcher: the one that reports gives orders, the others carry them out.

Orders are lines of a log in the shared folder:
    {"event": "crew", "job": PATH}    start your rank of this job
    {"event": "stop"}                 end it
    {"event": "end"}                  the run is over
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpubalance.child import die_with_parent
from gpubalance.errors import CannotMeasureError
from gpubalance.launch.launcher_env import Share
from gpubalance.launch.start import child_environment, end_ranks, start_ranks
from gpubalance.node.host import usable_cores
from gpubalance.record.job import Job
from gpubalance.record.rank_log import LogTail, RankLog

POLL_S = 0.05
FIRST_ORDER_LIMIT_S = 180.0
PARENTS_LIMIT_S = 60.0
LOOK_S = 1.0
"""How often the owner of the folder is looked for."""


def orders_path(folder: Path) -> Path:
    """Where the reporting parent writes its orders."""
    return folder / "orders.jsonl"


def is_over(folder: Path) -> bool:
    """True when the run of this folder has given its last order."""
    return any(order["event"] == "end" for order in LogTail(orders_path(folder)).read())


class Orders:
    """The writing end. With own ranks there is nobody to tell, and nothing is written."""

    def __init__(self, folder: Path, share: Share) -> None:
        self._log = RankLog(orders_path(folder)) if share.run_key else None

    def crew(self, job_path: Path) -> None:
        """Have the other parents start their ranks of this job."""
        if self._log is not None:
            self._log.write("crew", job=str(job_path))

    def stop(self) -> None:
        """Have the other parents end their ranks."""
        if self._log is not None:
            self._log.write("stop")

    def end(self) -> None:
        """Tell the other parents that the run is over."""
        if self._log is not None:
            self._log.write("end")


def cores_of_ranks(share: Share, folder: Path, own: Sequence[int]) -> list[list[int]]:
    """The cores that the launcher lets each rank use, by rank; empty when one parent starts all of them.

    Raises CannotMeasureError when a parent does not show up.
    """
    if share.rank is None or share.world is None:
        return []
    tails = {rank: LogTail(_parent_path(folder, rank)) for rank in range(share.world) if rank != share.rank}
    cores = {share.rank: list(own)}
    limit = time.monotonic() + PARENTS_LIMIT_S
    while True:
        cores |= {rank: event["cores"] for rank, tail in tails.items() for event in tail.read()}
        absent = sorted(set(tails) - set(cores))
        if not absent:
            return [cores[rank] for rank in range(share.world)]
        if time.monotonic() > limit:
            raise CannotMeasureError(
                f"the {share.launcher} process of rank {absent[0]} did not show up within {PARENTS_LIMIT_S:g} s",
                "all ranks of a launcher run the same command with one TMPDIR; --nproc starts own ranks",
            )
        time.sleep(POLL_S)


def _parent_path(folder: Path, rank: int) -> Path:
    return folder / f"parent-{rank}.jsonl"


def serve(share: Share, folder: Path, module: str, launcher: int, goes_on: Callable[[Path], bool]) -> None:
    """Carry out orders as a parent that does not report. Prints nothing; returns when the run is over, or when whoever
    reports is gone: srun lets the other tasks live.

    Raises CannotMeasureError when no order ever comes.
    """
    assert share.rank is not None
    die_with_parent(launcher)  # an adopted parent ends with its launcher, and its rank with it
    with suppress(FileNotFoundError):  # the run is over already
        RankLog(_parent_path(folder, share.rank)).write("parent", cores=usable_cores())
    tail = LogTail(orders_path(folder))
    running: dict[int, subprocess.Popen[bytes]] = {}
    job: Job | None = None
    limit = time.monotonic() + FIRST_ORDER_LIMIT_S
    look_s = 0.0
    try:
        while True:
            for order in tail.read():
                if order["event"] == "end":
                    return
                end_ranks(running)
                running = {}
                if order["event"] == "crew":
                    job = Job.load(Path(order["job"]))
                    running = _start(job, share.rank, os.environ, module)
            if job is not None:
                running = _report_deaths(job, running)
            if not folder.exists():
                return
            if time.monotonic() > look_s:
                if not goes_on(folder):
                    return
                look_s = time.monotonic() + LOOK_S
            if job is None and time.monotonic() > limit:
                raise CannotMeasureError("rank 0's parent never gave an order")
            time.sleep(POLL_S)
    finally:
        end_ranks(running)


def _start(job: Job, rank: int, environment: Mapping[str, str], module: str) -> dict[int, subprocess.Popen[bytes]]:
    uuids = [slot.uuid for slot in job.slots if slot.uuid is not None]
    return start_ranks(job, [rank], child_environment(environment, uuids), module, own_store=False)


def _report_deaths(job: Job, running: dict[int, subprocess.Popen[bytes]]) -> dict[int, subprocess.Popen[bytes]]:
    for rank, process in running.items():
        code = process.poll()
        if code is not None:
            with suppress(FileNotFoundError):  # the run is over and its folder gone: nobody is left to be told
                RankLog(job.death_path(rank)).write("death", exit_code=code)
    return {rank: process for rank, process in running.items() if process.poll() is None}

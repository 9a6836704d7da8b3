"""A rank: `python -m gpubalance.workloads.rank_main`, with torchrun's variables and GPUBALANCE_JOB in its environment.

It writes what it does and measures to its log; the parent reads that and decides.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from gpubalance.child import answer_with_stacks, die_with_parent, wait_for_turn
from gpubalance.record.job import JOB_VARIABLE, PARENT_VARIABLE, Job
from gpubalance.record.rank_log import RankLog


def main() -> None:
    """Run all phases of the job as this rank, and never return."""
    die_with_parent(int(os.environ[PARENT_VARIABLE]))
    job = Job.load(Path(os.environ[JOB_VARIABLE]))
    rank = int(os.environ["RANK"])
    log = RankLog(job.log_path(rank))
    code = 1
    try:
        os.environ.update(job.environment)
        answer_with_stacks(job.stack_path(rank))
        log.write("hello", pid=os.getpid())
        code = _run(job, rank, log)
    except BaseException as error:  # noqa: BLE001  (the one boundary of a rank: everything becomes a log line)
        log.write("error", **_describe(error, log))
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # Interpreter shutdown with live gloo threads aborts now and then ("terminate called without an active
    # exception", torch 2.13); everything that matters is written.
    os._exit(code)


def _run(job: Job, rank: int, log: RankLog) -> int:
    from gpubalance.workloads import crew

    wait_for_turn()
    crew.run(job, rank, log)
    log.write("bye")
    return 0


def _describe(error: BaseException, log: RankLog) -> dict[str, str | None]:
    """What went wrong, where, and of which kind. Out of memory keeps torch's own numbers."""
    kind, where = "exception", log.where
    if type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError):
        kind, where = "out_of_memory", "work"  # never another rank's doing, wherever it was raised
    elif type(error).__name__ == "NoCudaError":
        kind = "no_cuda"
    text = str(error).strip().splitlines()[0] if str(error).strip() else ""
    name = type(error).__name__
    return {
        "kind": kind,
        "where": where,
        "phase": log.phase,
        "message": text if kind == "no_cuda" else f"{name}: {text}" if text else name,
        "detail": "".join(traceback.format_exception(error))[-8000:],
    }


if __name__ == "__main__":
    main()

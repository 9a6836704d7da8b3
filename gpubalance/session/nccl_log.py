"""What NCCL says that it does, from its own log: fresh processes, every message once, no clock.

Never in the timed pass: a line for each operation costs the host time, and NCCL reads NCCL_DEBUG once a process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gpubalance.launch.collect import Measured
from gpubalance.readers.nccl_log import parse_nccl_log
from gpubalance.record.job import Job
from gpubalance.record.timings import NcclFacts

PHASE = "nccl_log"
ATTEMPT = 2
"""The first look and the one with ranks rotated are 0 and 1."""

LOGGING = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING,NET,NVLS,COLL"}
LARGEST_LOG_BYTES = 16 * 2**20


def why_not_logged(environment: Mapping[str, str]) -> str | None:
    """Why NCCL's log is left alone: what the user set for it counts, and then there is nothing to read here."""
    if environment.get("NCCL_DEBUG_FILE"):
        return "NCCL_DEBUG_FILE is set, so that NCCL's log goes there"
    level = environment.get("NCCL_DEBUG", "").strip().upper()
    if level and level not in ("INFO", "TRACE"):
        return f"NCCL_DEBUG={level} is set, which does not tell it"
    return None


def logging_job(job: Job, environment: Mapping[str, str]) -> Job:
    """The collectives of a job once more in processes whose NCCL talks; variables of the user stay as they are."""
    wanted = {name: value for name, value in LOGGING.items() if not environment.get(name)}
    wanted["NCCL_DEBUG_FILE"] = f"{job.log_folder}/nccl-{ATTEMPT}.%p.log"
    return replace(job, attempt=ATTEMPT, phases=(PHASE,), faults=(), environment={**job.environment, **wanted})


def read_logs(job: Job, measured: Measured) -> NcclFacts | None:
    """What the logs of that job say; None when they say nothing. A file that NCCL could not open leaves its lines on
    stdout.
    """
    paths = sorted(Path(job.log_folder).glob(f"nccl-{ATTEMPT}.*.log"))
    paths += [path for rank in range(len(job.slots)) if (path := job.output_path(rank)).exists()]
    return parse_nccl_log((_text(path) for path in paths), len(job.slots), measured.nccl_operations)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(LARGEST_LOG_BYTES).decode(errors="replace")

"""What the parent tells a crew, through a file."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpubalance.record.job import Job, Slot
from tests.support import command_environment, make_job

FULL: dict[str, Any] = {
    "attempt": 1,
    "crew": "node",
    "device": "cuda",
    "backend": "nccl",
    "slots": (Slot(1, 1, "GPU-b", ()), Slot(0, None, None, (2, 3))),
    "phases": ("solo", "ddp", "collectives"),
    "faults": ({"kind": "compute", "rank": 1, "percent": 20.0, "ms": None},),
    "budget_s": 60.0,
    "passes": ((), ({"kind": "rival", "rank": 0}, {"kind": "sleep", "rank": 1, "ms": 5.0})),
    "pass_overlapped": False,
}


@pytest.mark.parametrize("values", [{}, FULL, {"slots": (), "phases": (), "faults": ()}], ids=["cpu", "full", "empty"])
def test_a_job_that_was_saved_is_the_job_that_is_loaded(tmp_path: Path, values: dict[str, Any]) -> None:
    job = make_job(tmp_path, **values)
    job.save(tmp_path / "job.json")
    assert Job.load(tmp_path / "job.json") == job


def test_a_number_that_is_none_cannot_be_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        make_job(tmp_path, budget_s=math.nan).save(tmp_path / "job.json")


def test_each_rank_of_each_crew_and_attempt_has_files_of_its_own(tmp_path: Path) -> None:
    jobs = [make_job(tmp_path, crew=crew, attempt=attempt) for crew in ("ranks", "node") for attempt in (0, 1)]
    paths = [
        path
        for job in jobs
        for rank in (0, 1, 11)
        for path in (job.log_path(rank), job.death_path(rank), job.output_path(rank))
    ]
    assert len(set(paths)) == len(paths) == 4 * 3 * 3
    assert {path.parent for path in paths} == {tmp_path}


def test_a_job_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_job(tmp_path).attempt = 2  # type: ignore[misc]


def test_a_rank_reads_its_job_and_writes_its_log_without_pydantic() -> None:
    code = "import sys, gpubalance.record.job, gpubalance.record.rank_log; print('pydantic' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], env=command_environment(), capture_output=True, check=True)
    assert shown.stdout == b"False\n"

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpubalance.record.job import Job
from gpubalance.workloads.passes import steps_of_block
from tests.support import make_job


def job(**values: Any) -> Job:
    return make_job(Path("/nowhere"), **values)


@pytest.mark.parametrize(
    ("step_ms", "steps"),
    [
        (10.0, 20),
        (125.0, 20),  # 24 blocks of 20 steps: 60 s
        (126.0, 19),
        (250.0, 10),
        (500.0, 5),
        (60_000.0, 5),
    ],
)
def test_long_steps_make_short_blocks(step_ms: float, steps: int) -> None:
    assert steps_of_block(step_ms, job(pass_steps=20)) == steps


def test_more_steps_than_wanted_are_never_made() -> None:
    assert steps_of_block(1.0, job(pass_steps=42)) == 42


def test_fewer_blocks_have_room_for_more_steps() -> None:
    assert steps_of_block(250.0, job(pass_blocks=12)) == 20

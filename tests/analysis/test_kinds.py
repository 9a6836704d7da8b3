"""Which devices are of one kind."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.analysis.kinds import kinds_of, named_kinds
from gpubalance.record.node import Device
from gpubalance.testing.runs import make_gpu


def gpu(index: int, name: str = "A", mig: bool = False, **readings: Any) -> Device:
    return make_gpu(index, **readings).model_copy(update={"name": name, "mig_enabled": mig})


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (gpu(1), True),
        (gpu(1, "B"), False),
        (gpu(1, mig=True), False),
        (gpu(1, power_default_limit_w=350.0), False),
        (gpu(1, power_limit_w=350.0), True),
    ],
    ids=["same", "model", "mig", "board", "lowered"],
)
def test_model_mig_and_the_limit_of_the_board_make_a_kind(other: Device, alike: bool) -> None:
    """A limit that somebody lowered makes none: it is why the device is slow."""
    assert (len(set(kinds_of([gpu(0), other]))) == 1) is alike


def test_kinds_are_named_and_timed_by_their_ranks() -> None:
    devices = [gpu(0, "B"), gpu(1), gpu(2), gpu(3, "B")]
    kinds = named_kinds(devices, (1, 2, 3, 0), (100.0, 104.0, 140.0, 150.0))
    assert [(kind.name, kind.ranks, kind.compute_ms) for kind in kinds] == [("A", (0, 1), 102.0), ("B", (2, 3), 145.0)]


def test_boards_of_one_model_are_told_apart_by_their_limit() -> None:
    devices = [gpu(0, power_default_limit_w=700.0), gpu(1, power_default_limit_w=350.0), gpu(2, mig=True)]
    names = [kind.name for kind in named_kinds(devices, (0, 1, 2), (1.0, 1.0, 1.0))]
    assert names == ["A (700 W)", "A (350 W)", "A (power limit unknown, MIG)"]

"""Faults on the CPU with the host's clock: what each adds to a step, where, and that it leaves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.faults import FAULTS, parse_fault
from gpubalance.workloads import inject
from gpubalance.workloads.clock import HostClock
from gpubalance.workloads.extra_work import ExtraWork
from gpubalance.workloads.inject import Faults
from tests.support import make_job

CPU = torch.device("cpu")


class Recorded(ExtraWork):
    """Extra work of which one unit takes as long as it is told, and which notes when it is done."""

    def __init__(self, unit_ms: float, step_ms: float, order: list[str]) -> None:
        super().__init__(CPU, HostClock())
        self.wanted_ms, self.order = unit_ms, order
        self.calibrate(step_ms)
        self.order.clear()

    def _time_unit(self) -> float:
        return self.wanted_ms

    def do(self, units: int) -> None:
        if units:
            self.order.append(f"{units} units")


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    noted: list[str] = []
    monkeypatch.setattr(HostClock, "wait", lambda _self: noted.append("wait"))
    monkeypatch.setattr(inject.time, "sleep", lambda seconds: noted.append(f"sleep {seconds:g} s"))
    return noted


def faults_of(order: list[str], *texts: str) -> Faults:
    """Faults as the command line spells them, without a rank; a unit takes 0.1 ms, a step 10 ms."""
    faults = [vars(parse_fault(text.replace(":", ":rank=1,"))) for text in texts]
    return Faults.of_rank(faults, 1, Recorded(0.1, 10.0, order))


STAGES = ("in_input", "in_copy", "in_forward", "in_backward", "before_input")


def stages_of(faults: Faults, order: list[str]) -> dict[str, list[str]]:
    """What one step does at each stage where a fault can act, stages without anything left out."""
    done = {}
    for stage in STAGES:
        order.clear()
        getattr(faults, stage)()
        done[stage] = list(order)
    return {stage: noted for stage, noted in done.items() if noted}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("compute:percent=20", {"in_forward": ["20 units"]}),
        ("backward:percent=5", {"in_backward": ["5 units"]}),
        ("sleep:ms=5", {"in_forward": ["wait", "sleep 0.005 s"]}),
        ("loader:ms=5", {"in_input": ["sleep 0.005 s"], "before_input": ["wait"]}),
        ("transient:percent=100,every=1", {"in_forward": ["100 units"]}),
        ("transient:percent=100,every=2", {}),
        ("data:factor=1.5", {}),
        ("memory:percent=35", {}),
        ("hog:processes=1", {}),
    ],
)
def test_a_fault_acts_at_its_stage_and_nowhere_else(text: str, expected: dict[str, Any], order: list[str]) -> None:
    assert stages_of(faults_of(order, text), order) == expected


def test_faults_of_several_kinds_add_up(order: list[str]) -> None:
    faults = faults_of(order, "compute:percent=20", "sleep:ms=1", "transient:percent=50,every=1", "backward:percent=7")
    assert stages_of(faults, order) == {
        "in_forward": ["wait", "sleep 0.001 s", "20 units", "50 units"],
        "in_backward": ["7 units"],
    }
    assert faults.described() == {"compute_units": 20, "backward_units": 7, "transient_units": 50}


def test_a_graph_holds_the_extra_work_of_every_step_and_nothing_of_the_host(order: list[str]) -> None:
    faults = faults_of(
        order, "compute:percent=20", "backward:percent=7", "sleep:ms=1", "loader:ms=1", "transient:percent=9,every=1"
    )
    faults.captured_forward()
    faults.in_backward()
    assert order == ["20 units", "7 units"]


def test_a_transient_fault_acts_in_every_nth_step_only(order: list[str]) -> None:
    faults = faults_of(order, "transient:percent=100,every=3")
    noted = []
    for _ in range(7):
        order.clear()
        faults.in_forward()
        noted.append(len(order))
    assert noted == [0, 0, 1, 0, 0, 1, 0]


@given(percent=st.floats(0.1, 1000), step_ms=st.floats(0.01, 1000), unit_ms=st.floats(0.001, 100))
def test_extra_work_is_the_wanted_share_of_a_healthy_step_to_half_a_unit_and_never_none(
    percent: float, step_ms: float, unit_ms: float
) -> None:
    extra = Recorded(unit_ms, step_ms, [])
    wanted_ms = percent / 100 * step_ms
    assert extra.units(percent) == 1 or abs(extra.units(percent) * unit_ms - wanted_ms) <= unit_ms / 2 * (1 + 1e-9)
    assert extra.units(percent) >= 1
    assert extra.units(0) == 0


def test_extra_work_is_a_product_of_random_numbers_that_are_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    operands: list[torch.Tensor] = []
    real = torch.mm

    def kept(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        operands.extend((a, b))
        return real(a, b, out=out)

    monkeypatch.setattr(torch, "mm", kept)
    extra = ExtraWork(CPU, HostClock())
    extra.calibrate(1000.0)
    operands.clear()
    extra.do(2)
    assert len(operands) == 4
    assert all(operand.count_nonzero() > 0.99 * operand.numel() for operand in operands)
    assert extra.units(100) > 0


def test_a_fault_that_was_not_calibrated_is_not_played_as_nothing() -> None:
    faults = Faults(ExtraWork(CPU, HostClock()), [{"kind": "compute", "percent": 20.0}])
    assert faults.needs_extra
    with pytest.raises(AssertionError, match="calibrated"):
        faults.in_forward()


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_only_faults_of_this_rank_are_played(kind: str, order: list[str]) -> None:
    values = dict.fromkeys(FAULTS[kind], 2.0)
    faults = Faults.of_rank([{"kind": kind, "rank": 0, **values}], 1, Recorded(0.1, 10.0, order))
    assert stages_of(faults, order) == {}
    assert faults.data_factor == 1.0
    assert not faults.needs_extra


@pytest.mark.parametrize(("mib", "pieces"), [(0.5, [0.5]), (256, [256]), (513, [256, 256, 1])])
def test_copies_are_as_large_as_asked_in_pieces_of_random_bytes(
    mib: float, pieces: list[float], tmp_path: Path
) -> None:
    faults = Faults(ExtraWork(CPU, HostClock()), [{"kind": "copies", "mib": mib}])
    with faults.playing(make_job(tmp_path), 0):
        assert [len(target) / 2**20 for target, _ in faults._copied] == pieces
        target, source = faults._copied[0]
        target.zero_()
        faults.in_copy()
        assert torch.equal(target, source)
        assert source.count_nonzero() == len(source)
    assert faults._copied == []


def test_held_memory_is_the_wanted_share_and_given_back_after_an_error(tmp_path: Path) -> None:
    faults = Faults(ExtraWork(CPU, HostClock()), [{"kind": "memory", "percent": 35.0}])

    def fail() -> None:
        with faults.playing(make_job(tmp_path), 0):
            faults.hold_memory(1000)
            assert [len(held) for held in faults._held] == [350]
            raise MemoryError

    with pytest.raises(MemoryError):
        fail()
    assert faults._held == []

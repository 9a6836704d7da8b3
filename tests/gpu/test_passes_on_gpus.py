"""Faults on real GPUs, one a pass in one crew: each does what it says, and the passes after it are healthy."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace

import psutil
import pytest

from gpubalance.faults import parse_fault
from gpubalance.launch.collect import Measured, collect_passes
from gpubalance.launch.follow import Follower
from gpubalance.launch.launcher_env import Share
from gpubalance.launch.plan import make_plan
from gpubalance.launch.start import RANK_MODULE, child_environment, end_ranks, start_ranks
from gpubalance.record.timings import RankSteps
from gpubalance.sampling.client import SensorProcess
from gpubalance.session.jobs import first_job
from gpubalance.settings import BenchSettings

pytestmark = [pytest.mark.gpu, pytest.mark.gpus(2)]

PLAYED = {
    "warm": (),
    "healthy": (),
    "compute": ("compute:rank=1,percent=20",),
    "backward": ("backward:rank=1,percent=20",),
    "transient": ("transient:rank=1,percent=100,every=10",),
    "sleep": ("sleep:rank=1,ms=3",),
    "loader": ("loader:rank=1,ms=3",),
    "copies": ("copies:rank=1,mib=128",),
    "data": ("data:rank=1,factor=1.5",),
    "context": ("context:rank=1,device=0",),
    "memory": ("memory:rank=1,percent=60",),
    "hog": ("hog:rank=1,processes=8",),
    "rival": ("rival:rank=1",),
    "after": (),
}


@pytest.fixture(scope="module")
def passes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Measured]]:
    folder = tmp_path_factory.mktemp("passes")
    sensor = SensorProcess(folder, 0.1, child_environment(os.environ, ()), None)
    plan, _ = make_plan(sensor.node(), BenchSettings(nproc=2, force=True), Share("own"))
    sensor.stop()
    job = replace(
        first_job(BenchSettings(), plan, folder),
        phases=("passes",),
        passes=tuple(tuple(asdict(parse_fault(text)) for text in texts) for texts in PLAYED.values()),
        pass_overlapped=True,
    )
    environment = child_environment(os.environ, [device.uuid for device in plan.devices if device.uuid])
    processes = start_ranks(job, range(2), environment, RANK_MODULE, own_store=True)
    try:
        outcome = Follower(job, processes, 120.0, lambda _rank, _event: None).follow()
        assert outcome.errors == []
    finally:
        end_ranks(processes)
    found = dict(zip(PLAYED, collect_passes(job, outcome.events, 0.0), strict=True))
    sys.stdout.write(_table(found))
    yield found
    left = [
        p for p in psutil.process_iter(["cmdline"]) if "gpubalance.workloads.rival_main" in (p.info["cmdline"] or [])
    ]
    assert left == []


def _table(passes: dict[str, Measured]) -> str:
    """All that a person wants to see of such a run; shown by `pytest -s`."""
    lines = []
    for name, measured in passes.items():
        for steps in steps_of(measured):
            stages = " ".join(f"{stage} {statistics.median(values):.3f}" for stage, values in steps.stages_ms.items())
            host = steps.host[len(steps.host) // 2]
            lines.append(
                f"{name:9} rank {steps.rank} compute {compute(steps):7.3f} {stages} device {steps.device_step_ms} "
                f"({steps.device_step_missing}) collector {steps.collector_ms} units {steps.units_per_step:.3f} "
                f"overlapped {statistics.median(steps.overlapped_step_ms):.3f} cpu {host.cpu_s / host.wall_s:.2f} "
                f"queued {host.queued_s} switches {host.voluntary_switches} {host.involuntary_switches}"
            )
    return "".join(f"\n{line}" for line in lines) + "\n"


def steps_of(measured: Measured) -> list[RankSteps]:
    assert measured.ddp is not None
    return measured.ddp.ranks


def compute(steps: RankSteps) -> float:
    return statistics.median(value for block in steps.fenced for value in block.compute_ms)


def ratio(passes: dict[str, Measured], name: str, stage: str | None = None) -> float:
    """Rank 1's compute or stage with the fault over the same in the healthy pass."""
    faulty, healthy = (steps_of(passes[each])[1] for each in (name, "healthy"))
    if stage is None:
        return compute(faulty) / compute(healthy)
    return statistics.median(faulty.stages_ms[stage]) / statistics.median(healthy.stages_ms[stage])


def test_healthy_passes_at_both_ends_are_alike(passes: dict[str, Measured]) -> None:
    for rank in (0, 1):
        first, last = (compute(steps_of(passes[name])[rank]) for name in ("healthy", "after"))
        assert last == pytest.approx(first, rel=0.03)


@pytest.mark.parametrize("kind", ["compute", "backward"])
def test_extra_work_is_the_wanted_share_in_its_stage_and_in_the_replay(kind: str, passes: dict[str, Measured]) -> None:
    stage = {"compute": "forward", "backward": "backward"}[kind]
    assert ratio(passes, kind) == pytest.approx(1.2, abs=0.04)
    grown = {each: ratio(passes, kind, each) for each in ("forward", "backward")}
    assert max(grown, key=lambda each: grown[each]) == stage
    replayed = [steps_of(passes[name])[1].device_step_ms or 0.0 for name in ("healthy", kind)]
    assert replayed[1] / replayed[0] == pytest.approx(1.2, abs=0.05)


def test_a_transient_fault_doubles_one_step_in_ten(passes: dict[str, Measured]) -> None:
    times = [value for block in steps_of(passes["transient"])[1].fenced for value in block.compute_ms]
    typical = statistics.median(times)
    long = sum(value > 1.5 * typical for value in times)
    assert long == pytest.approx(len(times) / 10, rel=0.2)


@pytest.mark.parametrize("kind", ["sleep", "loader"])
def test_the_host_delays_the_step_and_not_the_replay(kind: str, passes: dict[str, Measured]) -> None:
    faulty, healthy = (steps_of(passes[name])[1] for name in (kind, "healthy"))
    assert 3.0 <= compute(faulty) - compute(healthy) < 4.0
    assert faulty.device_step_ms == pytest.approx(healthy.device_step_ms, rel=0.03)
    assert (min(faulty.stages_ms["input"]) >= 3.0) == (kind == "loader")


def test_copies_are_seen_in_their_stage(passes: dict[str, Measured]) -> None:
    faulty, healthy = (steps_of(passes[name])[1] for name in ("copies", "healthy"))
    copied_ms = statistics.median(faulty.stages_ms["copy"])
    assert compute(faulty) - compute(healthy) == pytest.approx(copied_ms, rel=0.2)
    assert 128 * 2**20 / copied_ms / 1e6 > 3  # GB/s: PCIe of the third generation, four lanes


def test_a_rival_slows_the_device_itself(passes: dict[str, Measured]) -> None:
    assert ratio(passes, "rival") > 1.3
    faulty, healthy = (steps_of(passes[name])[1] for name in ("rival", "healthy"))
    assert (faulty.device_step_ms or 0.0) > 1.3 * (healthy.device_step_ms or 0.0)


def test_a_hog_slows_the_host_and_not_the_device(passes: dict[str, Measured]) -> None:
    faulty, healthy = (steps_of(passes[name])[1] for name in ("hog", "healthy"))
    switches = [sum(use.involuntary_switches for use in steps.host) for steps in (faulty, healthy)]
    assert switches[0] > switches[1]
    assert faulty.device_step_ms == pytest.approx(healthy.device_step_ms, rel=0.05)


@pytest.mark.parametrize("kind", ["context", "memory"])
def test_memory_and_contexts_slow_nobody(kind: str, passes: dict[str, Measured]) -> None:
    assert ratio(passes, kind) == pytest.approx(1.0, abs=0.03)


def test_every_pass_has_a_replay_and_peaks_of_its_own(passes: dict[str, Measured]) -> None:
    peaks = {name: measured.memory[1].peak_allocated_bytes for name, measured in passes.items()}
    assert peaks["memory"] > 2 * peaks["healthy"]
    assert peaks["after"] == pytest.approx(peaks["healthy"], rel=0.02)
    assert all(steps.device_step_ms for name, each in passes.items() if name != "memory" for steps in steps_of(each))

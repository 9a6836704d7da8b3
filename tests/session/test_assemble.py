"""From everything that was gathered to one record."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpubalance import __version__
from gpubalance.checks.verdict import judge
from gpubalance.faults import Fault
from gpubalance.launch.collect import Measured
from gpubalance.record.file import load_run, save_text
from gpubalance.record.run import Phase, Run, RunError, Setting, Skipped
from gpubalance.record.timings import DataParallelResult, RankMemory
from gpubalance.reports.document import document_text
from gpubalance.session.assemble import Gathered, assemble_run
from gpubalance.settings import BenchSettings, Margin
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady

STARTED = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
SAMPLE = make_run([make_attempt(steady([100.0, 100.0]))])


def gathered(*measured: Measured, **values: Any) -> Gathered:
    return Gathered(STARTED, time.monotonic(), measured=list(measured), **values)


def silent_sensor(events: list[dict[str, Any]] | None = None, **values: Any) -> Any:
    """What the record takes from a sensor."""
    return SimpleNamespace(**{"events": events or [], "hung_in": None, "died_with": None, "last_words": None, **values})


def assemble(found: Gathered, settings: BenchSettings | None = None, sensor: Any = None) -> Run:
    return assemble_run(settings or BenchSettings(), SAMPLE.node, SAMPLE.plan, found, sensor or silent_sensor())


def memory(rank: int) -> RankMemory:
    return RankMemory(rank=rank, device=rank, peak_allocated_bytes=1, peak_reserved_bytes=2, capacity_bytes=3)


FIRST = Measured(
    ranks=SAMPLE.ranks,
    phases=[Phase(name="ddp", attempt=0, begin_s=1.0, end_s=2.0)],
    ddp=SAMPLE.ddp[0],
    solo=[make_solo(0, 90.0), make_solo(1, 90.0)],
    memory=[memory(0), memory(1)],
    skipped=[Skipped(what="graph", reason="capture failed")],
)
SECOND = Measured(
    phases=[Phase(name="ddp", attempt=1, begin_s=3.0, end_s=4.0)],
    ddp=make_attempt(steady([100.0, 100.0]), attempt=1, devices=[1, 0]),
    memory=[memory(1), memory(0)],
)
LAST = Measured(
    data_parallel=DataParallelResult(
        global_batch=8192, shards=[4096, 4096], step_ms=20.0, one_device_step_ms=19.0, peak_memory_bytes=[4, 1]
    )
)


def test_what_all_crews_measured_stands_in_one_record_in_their_order() -> None:
    run = assemble(gathered(FIRST, SECOND, LAST))
    assert [attempt.attempt for attempt in run.ddp] == [0, 1]
    assert [phase.attempt for phase in run.phases] == [0, 1]
    assert len(run.solo) == 2
    assert run.data_parallel == LAST.data_parallel
    assert run.ranks == SAMPLE.ranks


def test_memory_is_that_of_the_first_crew_because_that_is_the_one_that_is_judged() -> None:
    assert [each.rank for each in assemble(gathered(FIRST, SECOND, LAST)).memory] == [0, 1]


def test_nothing_measured_is_a_record_too() -> None:
    run = assemble(gathered())
    assert (run.ddp, run.solo, run.data_parallel, run.memory) == ([], [], None, [])
    assert (run.node, run.plan) == (SAMPLE.node, SAMPLE.plan)
    assert run.gpubalance_version == __version__


def test_a_run_is_known_by_its_start_and_no_two_have_one_id() -> None:
    runs = [assemble(gathered()) for _ in range(20)]
    assert {run.started_at for run in runs} == {"2026-01-02T03:04:05+00:00"}
    assert all(run.run_id.startswith("2026-01-02T03-04-05-") for run in runs)
    assert len({run.run_id for run in runs}) == 20


def test_the_duration_is_from_the_start_until_now() -> None:
    found = gathered()
    found.start_s -= 12.0
    assert 12.0 <= assemble(found).duration_s < 60.0


def test_skips_of_the_plan_stand_before_those_of_the_ranks() -> None:
    found = gathered(FIRST)
    found.skip("links", "not part of this version")
    assert [skip.what for skip in assemble(found).skipped] == ["links", "graph"]


def test_errors_and_the_signal_that_ended_the_run_are_kept() -> None:
    error = RunError(kind="killed", where="work", message="killed by SIGKILL", rank=1, first_cause=True)
    run = assemble(gathered(errors=[error], interrupted_by=15))
    assert run.errors == [error]
    assert run.interrupted_by == 15


def test_the_first_ddp_attempt_is_found_wherever_it_stands() -> None:
    assert gathered().ddp is None
    assert gathered(Measured(), FIRST, SECOND).ddp == FIRST.ddp


def test_every_setting_is_recorded_with_its_origin() -> None:
    settings = BenchSettings(
        nproc=2,
        workloads=("solo", "ddp"),
        margin=Margin(0.04, 0.08),
        inject=(Fault("compute", rank=1, percent=20.0), Fault("sleep", rank=0, ms=2.5)),
        origins={"nproc": "flag", "margin": "GPUBALANCE_BENCH_MARGIN"},
    )
    run = assemble(gathered(), settings)
    assert set(run.settings) == set(settings.__dataclass_fields__) - {"origins"}
    assert run.settings["nproc"] == Setting(value=2, origin="flag")
    assert run.settings["workloads"] == Setting(value=["solo", "ddp"], origin="default")
    assert run.settings["margin"] == Setting(value=[0.04, 0.08], origin="GPUBALANCE_BENCH_MARGIN")
    assert run.settings["inject"].value == ["compute:rank=1,percent=20", "sleep:rank=0,ms=2.5"]
    assert run.settings["budget_s"] == Setting(value=None, origin="default")
    assert run.injected == ["compute:rank=1,percent=20", "sleep:rank=0,ms=2.5"]


@pytest.mark.parametrize(
    "settings", [BenchSettings(), BenchSettings(margin=Margin(0.04, 0.08), devices=("2", "GPU-1a"))]
)
def test_a_record_is_judged_by_its_margins_and_reads_back(tmp_path: Path, settings: BenchSettings) -> None:
    run = assemble(gathered(FIRST, SECOND), settings)
    judgement = judge(run)
    assert judgement.facts.margin_warn == (settings.margin.warn if settings.margin else 0.05)
    save_text(tmp_path / "run.json", document_text(run, judgement))
    assert load_run(tmp_path / "run.json") == run


def test_samples_are_on_the_clock_of_the_run_and_a_hung_sensor_is_said() -> None:
    found = gathered(pids={1000: 0})
    events = [
        {"event": "columns", "t_s": found.start_s, "columns": ["power_w"]},
        {"event": "sample", "t_s": found.start_s + 2.5, "rows": [[600.0], [610.0]], "late_ms": 0.1, "cost_ms": 0.2},
        {
            "event": "processes",
            "t_s": found.start_s,
            "processes": [{"device": 0, "pid": pid, "memory_used_bytes": 7} for pid in (1000, 1001)],
        },
    ]
    run = assemble(
        found, BenchSettings(sample_interval_s=0.5), silent_sensor(events, hung_in="nvmlDeviceGetPowerUsage 0")
    )
    assert run.samples.t_s == [2.5]
    assert [device.columns["power_w"] for device in run.samples.devices] == [[600.0], [610.0]]
    assert [(process.pid, process.rank) for process in run.samples.processes] == [(1000, 0), (1001, None)]
    assert run.samples.health is not None
    assert run.samples.health.interval_s == 0.5
    assert run.samples.health.hung_in == "nvmlDeviceGetPowerUsage 0"

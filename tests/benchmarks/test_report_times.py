"""Sizes and times of reports on a long run of a whole node, printed: `pytest -m benchmark -s tests/benchmarks`."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from gpubalance.checks.verdict import judge
from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import DeviceSamples, Samples, SensorHealth
from gpubalance.reports.document import document_text
from gpubalance.testing.runs import make_attempt, make_run, steady
from tests.support import command_environment, run_cli

pytestmark = pytest.mark.benchmark

GPUS = 8
SECONDS = 60
PER_SECOND = 10

RESTLESS = {
    # lowest, highest, digits: a value that changes at every tick is the longest in a file, and in a chart
    "utilization_percent": (0, 101, 0),
    "memory_utilization_percent": (0, 101, 0),
    "power_w": (120, 700, 3),
    "sm_clock_mhz": (1200, 1980, 0),
    "temperature_c": (30, 70, 0),
    "gpm_sm_percent": (0, 100, 2),
    "gpm_tensor_percent": (0, 100, 2),
    "gpm_dram_percent": (0, 100, 2),
    "gpm_nvlink_rx_mib_per_s": (0, 400_000, 2),
    "gpm_nvlink_tx_mib_per_s": (0, 400_000, 2),
}
STILL = {
    "memory_used_bytes": 6644695040,
    "memory_clock_mhz": 3201,
    "event_reasons": 4,
    "pcie_generation": 5,
    "pcie_width": 16,
}


def columns(generator: np.random.Generator, ticks: int) -> dict[str, list[float | int | None]]:
    """What NVML and GPM give of one GPU, in the digits that the sensor keeps."""
    found: dict[str, list[float | int | None]] = {name: [value] * ticks for name, value in STILL.items()}
    for name, (low, high, digits) in RESTLESS.items():
        values = generator.uniform(low, high, ticks)
        found[name] = [round(value, digits) if digits else int(value) for value in values.tolist()]
    return found


def long_run() -> Run:
    """Eight GPUs for a minute: ten samples a second, and the blocks that fit in it."""
    generator = np.random.default_rng(0)
    ticks = SECONDS * PER_SECOND
    times = steady([100.0] * GPUS, noise=0.01, blocks=24).round(4)
    return make_run(
        [make_attempt(times)],
        duration_s=float(SECONDS),
        phases=[
            Phase(name="ddp", attempt=0, begin_s=5.0, end_s=55.0),
            Phase(name="ddp fenced", attempt=0, begin_s=6.0, end_s=45.0),
            Phase(name="ddp overlapped", attempt=0, begin_s=45.0, end_s=55.0),
        ],
        samples=Samples(
            t_s=[round(tick / PER_SECOND + float(generator.uniform(0, 0.01)), 4) for tick in range(ticks)],
            devices=[DeviceSamples(device=device, columns=columns(generator, ticks)) for device in range(GPUS)],
            health=SensorHealth(interval_s=1 / PER_SECOND, ticks=ticks, missed_ticks=0),
        ),
    )


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("record") / "run.json"
    run = long_run()
    path.write_text(document_text(run, judge(run)))
    return path


def test_size_of_the_record(record: Path) -> None:
    print(f"\nrecord of {GPUS} GPUs, {SECONDS} s at {PER_SECOND} Hz: {record.stat().st_size / 1e6:.2f} MB")


@pytest.mark.parametrize("form", ["terminal", "json", "markdown", "html"])
def test_report(record: Path, form: str) -> None:
    times, kilobytes = [], 0.0
    for _ in range(5):
        begin = time.perf_counter()
        result = run_cli("report", str(record), "--to", form, env=command_environment())
        times.append(time.perf_counter() - begin)
        assert result.returncode in (0, 1, 3), result.stderr
        kilobytes = len(result.stdout.encode()) / 1000
    print(f"\nreport --to {form}: median {sorted(times)[2]:.2f} s, max {max(times):.2f} s, {kilobytes:.0f} kB")

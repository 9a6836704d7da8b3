"""What the sensor costs the ddp step: `python -m tests.benchmarks.sampling_cost`.

One long ddp phase; the sensor is stopped (SIGSTOP) and continued after each pair of blocks, so that both states see the
same clocks and temperatures. Compares the whole fenced step, sensor on against off.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from gpubalance.launch.follow import Follower
from gpubalance.launch.launcher_env import Share
from gpubalance.launch.plan import make_plan
from gpubalance.launch.start import child_environment, end_ranks, start_ranks
from gpubalance.record.job import Job
from gpubalance.record.rank_log import Event
from gpubalance.sampling.client import SensorProcess
from gpubalance.session.jobs import first_job
from gpubalance.settings import BenchSettings


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds")
    parser.add_argument("--interval", type=float, default=0.1, help="seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        steps = measure(Path(name), options.budget, options.interval)
    for state, values in steps.items():
        print(f"sensor {state}: {len(values)} blocks, step {statistics.median(values):.4f} ms")
    cost, error = cost_of(steps)
    print(f"cost {100 * cost:+.3f} % +- {100 * error:.3f} %")


def cost_of(steps: dict[str, list[float]]) -> tuple[float, float]:
    """By how much the step is longer with the sensor, and the standard error of that (of medians); shares."""
    on, off = (statistics.median(steps[state]) for state in ("on", "off"))
    error = 1.2533 * max(statistics.stdev(v) / len(v) ** 0.5 for v in steps.values()) * 2**0.5
    return on / off - 1, error / off


def measure(
    folder: Path, budget_s: float, interval_s: float, settings: BenchSettings | None = None
) -> dict[str, list[float]]:
    """Milliseconds of a step in each block, by the state of the sensor."""
    settings = replace(settings or BenchSettings(), force=True, budget_s=budget_s)
    sensor = SensorProcess(folder, interval_s, child_environment(os.environ, ()), None)
    plan, _ = make_plan(sensor.node(), settings, Share("own"))
    job = first_job(settings, plan, folder)
    job = Job(**{**job.__dict__, "phases": ("ddp",)})
    sensor.begin([d.nvml_index for d in plan.devices if d.nvml_index is not None], range(len(plan.devices)))
    uuids = [device.uuid for device in plan.devices if device.uuid]
    processes = start_ranks(
        job, range(len(plan.devices)), child_environment(os.environ, uuids), "gpubalance.workloads.rank_main",
        own_store=True,
    )  # fmt: skip
    steps: dict[str, list[float]] = {"on": [], "off": []}
    state = {"now": "on", "seen": 0}

    def on_event(rank: int, event: Event) -> None:
        if rank != 0 or event["event"] != "block":
            return
        times = zip(event["compute_ms"], event["fence_ms"], event["transfer_ms"], strict=True)
        if state["seen"] % 2 == 1:  # the first block after a switch still saw the other state
            steps[str(state["now"])].append(statistics.fmean(sum(parts) for parts in times))
            state["now"] = "off" if state["now"] == "on" else "on"
            os.kill(sensor.process.pid, signal.SIGCONT if state["now"] == "on" else signal.SIGSTOP)
        state["seen"] = int(state["seen"]) + 1

    try:
        Follower(job, processes, 120.0, on_event).follow()
    finally:
        end_ranks(processes)
        os.kill(sensor.process.pid, signal.SIGCONT)
        sensor.stop()
    return steps


if __name__ == "__main__":
    main()

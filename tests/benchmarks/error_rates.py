"""How often the ddp phase names a rank rightly and wrongly, on this machine: `python -m tests.benchmarks.error_rates`.

Runs short passes (24 blocks of 20 steps) in one set of processes: healthy ones, ones with 10 % and with 20 % extra
compute on a rank that alternates, in mixed order; then, in another set, passes with the real step rate, healthy and
changed in alternation, for the predicted against the measured loss. Prints tables and exact binomial bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gpubalance.analysis.exact import upper_bound
from gpubalance.analysis.facts import AttemptFacts, attempt_facts
from gpubalance.launch.collect import collect_passes
from gpubalance.launch.follow import Follower
from gpubalance.launch.launcher_env import Share
from gpubalance.launch.plan import make_plan
from gpubalance.launch.start import RANK_MODULE, child_environment, end_ranks, start_ranks
from gpubalance.record.job import Job
from gpubalance.record.run import Plan
from gpubalance.sampling.client import SensorProcess
from gpubalance.session.jobs import first_job
from gpubalance.settings import CPU_MARGIN, GPU_MARGIN, BenchSettings, Fault

HEALTHY = (0, 0.0)


@dataclass(frozen=True)
class Pass:
    """One pass: what was played and what came out."""

    rank: int
    percent: float
    facts: AttemptFacts


def detection_schedule(healthy: int, each: int) -> list[tuple[int, float]]:
    """(rank, percent of extra compute) of each pass, in mixed order."""
    items = [HEALTHY] * healthy + [(number % 2, percent) for percent in (10.0, 20.0) for number in range(each)]
    random.Random(1).shuffle(items)
    return items


def loss_schedule(pairs: int) -> list[tuple[int, float]]:
    """Changed passes, each between two healthy ones; the first two only warm the devices."""
    items = [HEALTHY] * 3 if pairs else []
    for number in range(pairs):
        for percent in (5.0, 10.0, 20.0):
            items += [(number % 2, percent), HEALTHY]
    return items


def run_passes(
    items: Sequence[tuple[int, float]],
    batch: int | None,
    *,
    overlapped: bool,
    nproc: int | None = None,
    device: str = "auto",
    module: str = RANK_MODULE,
) -> list[Pass]:
    """Play the schedule on so many devices of this machine, or on all; `module` is what a rank runs."""
    if not items:
        return []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = _plan(folder, BenchSettings(force=True, batch=batch, nproc=nproc, device=device))
        job = _job(plan, folder, items, overlapped=overlapped)
        environment = child_environment(os.environ, [device.uuid for device in plan.devices if device.uuid])
        processes = start_ranks(job, range(len(plan.devices)), environment, module, own_store=True)
        try:
            outcome = Follower(job, processes, 120.0, lambda _rank, _event: None).follow()
        finally:
            end_ranks(processes)
        for error in outcome.errors:
            print(error.rank, error.message, error.detail)
        on_cpu = plan.backend == "gloo"
        margin = CPU_MARGIN if on_cpu else GPU_MARGIN
        return [
            Pass(*items[measured.pass_number], attempt_facts(measured.ddp, margin.warn, margin.fail, on_cpu=on_cpu))
            for measured in collect_passes(job, outcome.events, 0.0)
            if measured.ddp is not None and measured.pass_number is not None
        ]


def _plan(folder: Path, settings: BenchSettings) -> Plan:
    sensor = SensorProcess(folder, 0.1, child_environment(os.environ, ()), None)
    plan, _ = make_plan(sensor.node(), settings, Share("own"))
    sensor.stop()
    return plan


def _job(plan: Plan, folder: Path, items: Sequence[tuple[int, float]], *, overlapped: bool) -> Job:
    played = [(Fault("compute", rank, percent=percent),) if percent else () for rank, percent in items]
    return replace(
        first_job(BenchSettings(), plan, folder),
        phases=("passes",),
        passes=tuple(tuple(asdict(fault) for fault in faults) for faults in played),
        pass_overlapped=overlapped,
    )


def print_detection(passes: Sequence[Pass]) -> None:
    """What was named, by what was played."""
    print("played     passes  named right  FAIL  named wrong  no verdict  ratio (min median max)")
    for percent in (0.0, 10.0, 20.0):
        rows = [p for p in passes if p.percent == percent]
        if not rows:
            continue
        right = sum(any(r.rank == p.rank for r in p.facts.stragglers.named) for p in rows) if percent else 0
        wrong = sum(any(r.rank != p.rank or not percent for r in p.facts.stragglers.named) for p in rows)
        failed = sum(p.facts.stragglers.state == "fail" for p in rows)
        unclear = sum(p.facts.stragglers.state == "unclear" for p in rows)
        ratios = sorted(p.facts.stragglers.ranks[p.rank if percent else 1].ratio for p in rows)
        spread = f"{ratios[0]:.3f} {statistics.median(ratios):.3f} {ratios[-1]:.3f}"
        print(f"{percent:4.0f} %  {len(rows):10}  {right:11}  {failed:4}  {wrong:11}  {unclear:10}  {spread}")
        if not percent:
            print(f"        false alarms: at most {100 * upper_bound(wrong, len(rows)):.1f} % with 95 % confidence")


def losses(before: AttemptFacts, changed: AttemptFacts, after: AttemptFacts) -> tuple[float, float]:
    """Predicted and measured loss (shares) of a changed pass between two healthy ones, T_c = T_h + (M_c - M_h)."""
    healthy_ms = statistics.fmean([before.overlapped_ms or 0.0, after.overlapped_ms or 0.0])
    slowest_ms = statistics.fmean([before.balance.slowest_ms, after.balance.slowest_ms])
    growth = changed.balance.slowest_ms - slowest_ms
    return 1 - healthy_ms / (healthy_ms + growth), 1 - healthy_ms / (changed.overlapped_ms or 0.0)


def print_losses(passes: Sequence[Pass]) -> None:
    """Predicted against measured loss, T_c = T_h + (M_c - M_h); h: the mean of the healthy passes around it."""
    real, played = [p.facts for p in passes[2:]], [p.percent for p in passes[2:]]
    differences: dict[float, list[float]] = {}
    print("\nplayed   predicted loss   measured loss   difference (points)")
    for before, changed, after, percent in zip(real[::2], real[1::2], real[2::2], played[1::2], strict=False):
        predicted, measured = (100 * loss for loss in losses(before, changed, after))
        differences.setdefault(percent, []).append(predicted - measured)
        print(f"{percent:4.0f} %   {predicted:12.2f} %   {measured:11.2f} %   {predicted - measured:+.2f}")
    for percent, values in differences.items():
        print(f"{percent:4.0f} %   mean difference {statistics.fmean(values):+.2f} of {len(values)}")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--healthy", type=int, default=60)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--batch", type=int, help="global batch")
    parser.add_argument("--out", type=Path, help="write facts of all passes as JSON lines")
    options = parser.parse_args()
    passes = run_passes(detection_schedule(options.healthy, options.each), options.batch, overlapped=False)
    print_detection(passes)
    with_rate = run_passes(loss_schedule(options.pairs), options.batch, overlapped=True)
    print_losses(with_rate)
    if options.out:
        from gpubalance.reports.document import plain

        options.out.write_text("".join(json.dumps(plain(each)) + "\n" for each in passes + with_rate))


if __name__ == "__main__":
    main()

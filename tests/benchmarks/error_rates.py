"""How often the ddp phase names a rank rightly and wrongly, on this machine: `python -m tests.benchmarks.error_rates`.

Runs short passes (24 blocks of 20 steps) in sets of processes: healthy ones, and ones with extra compute (8, 10 and
20 %) on a rank drawn by chance, in mixed order; then passes with the real step rate, healthy and changed in turns, for
the predicted against the measured loss. Prints tables and exact binomial bounds. With --within it ends in time, and
says how many passes it had to leave out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gpubalance.analysis.exact import upper_bound
from gpubalance.analysis.facts import AttemptFacts, attempt_facts
from gpubalance.faults import Fault
from gpubalance.launch.collect import collect_passes
from gpubalance.launch.follow import Follower
from gpubalance.launch.launcher_env import Share
from gpubalance.launch.plan import make_plan
from gpubalance.launch.start import RANK_MODULE, child_environment, end_ranks, start_ranks
from gpubalance.record.job import Job
from gpubalance.record.run import Plan
from gpubalance.sampling.client import SensorProcess
from gpubalance.session.jobs import first_job
from gpubalance.settings import CPU_MARGIN, GPU_MARGIN, BenchSettings, Margin, parse_duration, parse_margin

Item = tuple[int, float]
"""(rank, percent of extra compute); 0 percent is a healthy pass."""

HEALTHY: Item = (0, 0.0)
CREW = 50
"""Passes of one set of processes: what is done is kept when the next set fails or has no time left."""


@dataclass(frozen=True)
class Pass:
    """One pass: what was played and what came out."""

    rank: int
    percent: float
    facts: AttemptFacts

    @property
    def named(self) -> set[int]:
        """Ranks that were called slow."""
        return {speed.rank for speed in self.facts.stragglers.named}


@dataclass(frozen=True)
class How:
    """How passes are run."""

    batch: int | None = None
    """Global batch; None: the planned one."""
    overlapped: bool = False
    """With the real step rate."""
    replayed: bool = False
    """With the replay of the step, by which causes are told."""
    steps: int = 20
    """Of a block."""
    margin: Margin | None = None
    nproc: int | None = None
    device: str = "auto"
    module: str = RANK_MODULE
    """What a rank runs."""


@dataclass
class Played:
    """What came of a schedule."""

    passes: list[Pass] = field(default_factory=list)
    left_out: int = 0
    """Passes for which there was no time."""


def detection_schedule(healthy: int, each: int, percents: Sequence[float], ranks: int, seed: int) -> list[Item]:
    """So many healthy passes and so many of each size, on ranks drawn by chance, in mixed order."""
    generator = random.Random(seed)
    items = [HEALTHY] * healthy
    items += [(generator.randrange(ranks), percent) for percent in percents for _ in range(each)]
    generator.shuffle(items)
    return items


def loss_schedule(pairs: int, ranks: int) -> list[Item]:
    """Changed passes, each between two healthy ones; the first two only warm the devices."""
    items = [HEALTHY] * 3 if pairs else []
    for number in range(pairs):
        for percent in (5.0, 10.0, 20.0):
            items += [(number % ranks, percent), HEALTHY]
    return items


def in_crews(items: Sequence[Item], how: How, within_s: float) -> Played:
    """Play a schedule, `CREW` passes in each set of processes, as far as the time reaches by what the last set took."""
    begin_s, played, last_s = time.monotonic(), Played(), 0.0
    for first in range(0, len(items), CREW):
        crew_s = time.monotonic()
        if crew_s + last_s > begin_s + within_s:
            played.left_out = len(items) - first
            break
        played.passes += run_passes(items[first : first + CREW], how)
        last_s = time.monotonic() - crew_s
        print(f"{len(played.passes)} of {len(items)} passes, {last_s:.0f} s for the last set", file=sys.stderr)
    return played


def run_passes(items: Sequence[Item], how: How, within_s: float | None = None) -> list[Pass]:
    """Play the schedule in one set of processes; those that are finished by then."""
    if not items:
        return []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = _plan(folder, how)
        job = _job(plan, folder, items, how)
        environment = child_environment(os.environ, [device.uuid for device in plan.devices if device.uuid])
        processes = start_ranks(job, range(len(plan.devices)), environment, how.module, own_store=True)
        try:
            until_s = None if within_s is None else time.monotonic() + within_s
            outcome = Follower(job, processes, 120.0, lambda _rank, _event: None, until_s=until_s).follow()
        finally:
            end_ranks(processes)
        for error in outcome.errors:
            print(error.rank, error.message, error.detail)
        on_cpu = plan.backend == "gloo"
        margin = how.margin or (CPU_MARGIN if on_cpu else GPU_MARGIN)
        return [
            Pass(*items[measured.pass_number], attempt_facts(measured.ddp, margin.warn, margin.fail, on_cpu=on_cpu))
            for measured in collect_passes(job, outcome.events, 0.0)
            if measured.ddp is not None and measured.pass_number is not None
        ]


def _plan(folder: Path, how: How) -> Plan:
    settings = BenchSettings(force=True, batch=how.batch, nproc=how.nproc, device=how.device)
    sensor = SensorProcess(folder, 0.1, child_environment(os.environ, ()), None)
    plan, _ = make_plan(sensor.node(), settings, Share("own"))
    sensor.stop()
    return plan


def _job(plan: Plan, folder: Path, items: Sequence[Item], how: How) -> Job:
    played = [(Fault("compute", rank, percent=percent),) if percent else () for rank, percent in items]
    return replace(
        first_job(BenchSettings(), plan, folder),
        phases=("passes",),
        passes=tuple(tuple(asdict(fault) for fault in faults) for faults in played),
        pass_overlapped=how.overlapped,
        pass_replayed=how.replayed,
        pass_steps=how.steps,
    )


def print_detection(passes: Sequence[Pass]) -> None:
    """What was named, by what was played."""
    print("played     passes  named right  missed at most  FAIL  named wrong  no verdict  ratio (min median max)")
    for percent in sorted({each.percent for each in passes}):
        rows = [each for each in passes if each.percent == percent]
        wanted = [{each.rank} if percent else set() for each in rows]
        right = sum(each.named == ranks for each, ranks in zip(rows, wanted, strict=True))
        wrong = sum(bool(each.named - ranks) for each, ranks in zip(rows, wanted, strict=True))
        failed = sum(each.facts.stragglers.state == "fail" for each in rows)
        unclear = sum(each.facts.stragglers.state == "unclear" for each in rows)
        ratios = sorted(each.facts.stragglers.ranks[each.rank].ratio for each in rows)
        spread = f"{ratios[0]:.3f} {statistics.median(ratios):.3f} {ratios[-1]:.3f}"
        missed = f"{100 * upper_bound(len(rows) - right, len(rows)):.1f} %"
        counts = f"{len(rows):10}  {right:11}  {missed:>14}  {failed:4}  {wrong:11}  {unclear:10}"
        print(f"{percent:4.0f} %  {counts}  {spread}")
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


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", type=int, default=60)
    parser.add_argument("--each", type=int, default=20, help="passes of each size")
    parser.add_argument("--percents", default="8,10,20", help="sizes of extra compute")
    parser.add_argument("--pairs", type=int, default=2, help="adjacent passes of 5, 10 and 20 %% for losses")
    parser.add_argument("--margin", type=parse_margin, help="WARN:FAIL in percent")
    parser.add_argument("--steps", type=int, default=20, help="of a block")
    parser.add_argument("--batch", type=int, help="global batch of the passes that are not for losses")
    parser.add_argument("--nproc", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=parse_duration, default=86400.0, help="time for all of it")
    parser.add_argument("--out", type=Path, help="write facts of all passes as JSON lines")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, module: str = RANK_MODULE) -> None:
    """Run and print."""
    begin_s, options = time.monotonic(), parsed(arguments)
    how = How(
        options.batch, steps=options.steps, margin=options.margin, nproc=options.nproc, device=options.device,
        module=module,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        ranks = len(_plan(Path(name), how).devices)
    percents = [float(text) for text in options.percents.split(",") if text]
    pairs = run_passes(loss_schedule(options.pairs, ranks), replace(how, batch=None, overlapped=True, steps=20))
    schedule = detection_schedule(options.healthy, options.each, percents, ranks, options.seed)
    played = in_crews(schedule, how, options.within - (time.monotonic() - begin_s))
    print(f"{ranks} ranks, blocks of {options.steps} steps, seed {options.seed}")
    print_detection(played.passes)
    if played.left_out:
        print(f"{played.left_out} of {len(schedule)} passes left out: no time")
    if pairs:
        print_losses(pairs)
    if options.out:
        from gpubalance.reports.document import plain

        options.out.write_text("".join(json.dumps(plain(each)) + "\n" for each in played.passes + pairs))


if __name__ == "__main__":
    main()

"""The steps of `eight_gpus`, each in a process of its own: `python -m tests.benchmarks.eight_steps NAME ASKED RESULT`.

ASKED is a JSON file with what was asked for, RESULT the file for what was found. A step that has nothing to measure
here raises LeftOut with the reason.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubalance.analysis.exact import upper_bound
from gpubalance.analysis.links import LinkFacts, link_facts
from gpubalance.launch.start import RANK_MODULE
from gpubalance.record.file import load_run
from gpubalance.settings import BenchSettings
from tests.benchmarks import against_nccl_tests, against_nvbandwidth, sampling_cost
from tests.benchmarks.error_rates import How, Pass, losses, run_passes

Found = dict[str, Any]
OUTLIER = 0.97
"""Share of its class from which on a link is no outlier: what the spread of a healthy node has to confirm."""
BENCH_FILE, SELFTEST_FILE = "bench.json", "selftest.json"
WARM = 2
"""Passes that only warm the devices."""
PASS_S, START_S, END_S = 10.0, 15.0, 5.0
"""A pass of 24 blocks and its overlapped steps (8.7 s on two H200s), starting ranks, and ending them."""
WHOLE_SELFTEST_S = 450.0
"""With less a quick selftest is made."""


class LeftOut(Exception):  # noqa: N818  (no error: there is nothing to measure)
    """Why a step is not done here."""


@dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    out: str
    nproc: int
    device: str
    passes: int
    seed: int
    seconds: float
    """That this step may take."""
    tiny: bool = False
    nccl_tests: str | None = None
    nvbandwidth: str | None = None
    module: str = RANK_MODULE
    """What a rank runs in the passes; for tests."""
    result: str | None = None
    """Where a step leaves what it found."""

    @property
    def batch(self) -> int | None:
        """Global batch: the planned one, or the smallest that shows anything."""
        return 16 * self.nproc if self.tiny else None

    def command(self, *arguments: str) -> list[str]:
        """A command of gpubalance over the same devices."""
        whose = ["--nproc", str(self.nproc), "--device", self.device, "--force"]
        return [sys.executable, "-m", "gpubalance", *arguments, *whose]


def bench(asked: Asked) -> Found:
    """One whole command, timed; its record is kept."""
    path = Path(asked.out) / BENCH_FILE
    small = ["--batch", str(asked.batch)] if asked.tiny else []
    begin_s = time.monotonic()
    done = _run(asked.command("bench", *small, "--fail-on", "never", "--out", str(path)))
    seconds = time.monotonic() - begin_s
    document = json.loads(path.read_text())
    run, judgement = load_run(path), document["judgement"]
    return {
        "seconds": seconds, "within_60_s": seconds <= 60, "exit_code": done.returncode,
        "verdict": judgement["verdict"], "sentence": judgement["sentence"], "file": BENCH_FILE,
        "errors": [error.message for error in run.errors],
        "skipped": {skip.what: skip.reason for skip in run.skipped},
    }  # fmt: skip


def schedule(count: int, ranks: int, seed: int) -> list[tuple[int, float]]:
    """(rank, percent of extra compute): after passes that warm, so many changed ones, each between two healthy ones."""
    generator = random.Random(seed)
    items = [(0, 0.0)] * (WARM + 1)
    for _ in range(count):
        items += [(generator.randrange(ranks), 10.0), (0, 0.0)]
    return items


def detection(asked: Asked) -> Found:
    """Healthy passes and passes with 10 % more compute on a random rank, in one crew."""
    items = schedule(fitting(asked), asked.nproc, asked.seed)
    how = How(asked.batch, overlapped=True, nproc=asked.nproc, device=asked.device, module=asked.module)
    passes = run_passes(items, how, asked.seconds - END_S)
    whole = len(passes) - WARM - (len(passes) - WARM + 1) % 2
    if whole < 3:
        raise LeftOut(f"only {len(passes)} of {len(items)} passes were finished")
    return judged(passes[WARM : WARM + whole])


def fitting(asked: Asked) -> int:
    """Changed passes, each with a healthy one, for which there should be time."""
    return max(1, min(asked.passes, int((asked.seconds - END_S - START_S) / PASS_S - WARM - 1) // 2))


def judged(passes: list[Pass]) -> Found:
    """What was named, and what it cost; healthy and changed in alternation."""
    healthy, changed = passes[::2], passes[1::2]
    named = [{speed.rank for speed in each.facts.stragglers.named} for each in passes]
    alarms = sum(bool(names) for names in named[::2])
    rows = []
    for place, each in enumerate(changed):
        predicted, measured = losses(passes[2 * place].facts, each.facts, passes[2 * place + 2].facts)
        rows.append({
            "rank": each.rank, "named": sorted(named[2 * place + 1]), "right": named[2 * place + 1] == {each.rank},
            "ratio": each.facts.stragglers.ranks[each.rank].ratio,
            "predicted_loss": predicted, "measured_loss": measured,
        })  # fmt: skip
    differences = [float(row["predicted_loss"]) - float(row["measured_loss"]) for row in rows]
    return {
        "healthy": len(healthy), "false_alarms": alarms, "false_alarms_at_most": upper_bound(alarms, len(healthy)),
        "changed": len(rows), "right": sum(bool(row["right"]) for row in rows),
        "missed_at_most": upper_bound(sum(not row["right"] for row in rows), len(rows)),
        "mean_difference": statistics.fmean(differences) if differences else None, "passes": rows,
        "healthy_ratios": [[speed.ratio for speed in each.facts.stragglers.ranks] for each in healthy],
    }  # fmt: skip


def selftest(asked: Asked) -> Found:
    """The whole matrix."""
    path = Path(asked.out) / SELFTEST_FILE
    small = ["--quick"] if asked.tiny or asked.seconds < WHOLE_SELFTEST_S else []
    small += ["--rows", "compute"] if asked.tiny else []
    done = _run(asked.command("selftest", *small, "--seed", str(asked.seed), "--out", str(path)))
    judgement = json.loads(path.read_text())["judgement"]
    return {
        "exit_code": done.returncode, "verdict": judgement["verdict"], "sentence": judgement["sentence"],
        "rows": {row["row"]: row["right"] for row in judgement["rows"]}, "file": SELFTEST_FILE,
        "largest_difference": judgement["largest_difference"],
    }  # fmt: skip


def data_parallel(asked: Asked) -> Found:
    """What the whole bench measured of nn.DataParallel."""
    path = Path(asked.out) / BENCH_FILE
    if not path.exists():
        raise LeftOut("the bench before it left no record")
    run = load_run(path)
    if run.data_parallel is None:
        raise LeftOut(next((s.reason for s in run.skipped if s.what == "data_parallel"), "it was not measured"))
    found = run.data_parallel
    return {**found.model_dump(), "speed_up": found.one_device_step_ms / found.step_ms}


def links(asked: Asked) -> Found:
    """The matrix of links beside nvbandwidth's, and how much equal links differ."""
    if asked.device == "cpu":
        raise LeftOut("there are no links between CPU ranks")
    path = Path(asked.out) / BENCH_FILE
    run = load_run(path) if path.exists() else None
    facts = link_facts(run, 0.0) if run is not None else None
    found: Found = {"spread": spread(facts) if facts is not None else "the bench before it measured no links"}
    if asked.nvbandwidth is None:
        return {**found, "nvbandwidth": "its path was not given"}
    keep(asked, {**found, "nvbandwidth": "there was no time for it"})
    deadline_s = time.monotonic() + asked.seconds
    try:
        version = against_nvbandwidth.version_of(Path(asked.nvbandwidth))
        ours, theirs = against_nvbandwidth.in_turns(Path(asked.nvbandwidth), 5, deadline_s)
    except against_nvbandwidth.CannotCompareError as error:
        return {**found, "nvbandwidth": str(error)}
    return {**found, "nvbandwidth": version, "rows": against_nvbandwidth.compared(ours, theirs)}


def spread(facts: LinkFacts) -> dict[str, Found]:
    """By class of link: standard deviation, smallest and largest copy as shares of the median."""
    by_class: dict[str, list[float]] = {}
    for peer in facts.peers:
        by_class.setdefault(peer.link.name, []).append(peer.gb_per_s)
    found = {}
    for name, rates in by_class.items():
        middle = statistics.median(rates)
        least, most = min(rates) / middle, max(rates) / middle
        found[name] = {
            "copies": len(rates), "median_gb_per_s": middle, "standard_deviation": statistics.pstdev(rates) / middle,
            "smallest": least, "largest": most, "cut_off_holds": least >= OUTLIER,
        }  # fmt: skip
    return found


def collectives(asked: Asked) -> Found:
    """Collectives beside nccl-tests."""
    if asked.nccl_tests is None:
        raise LeftOut("the folder of nccl-tests was not given")
    folder = Path(asked.nccl_tests)
    if not any((folder / name).exists() for name in against_nccl_tests.BINARIES.values()):
        raise LeftOut(f"none of {', '.join(against_nccl_tests.BINARIES.values())} is in {folder}")
    rows, versions, left_out = against_nccl_tests.both_modes(folder, asked.nproc, within_s=asked.seconds)
    within = sum(bool(row["within"]) for row in rows)
    return {"within": within, "left_out": left_out, "versions": versions, "rows": rows}


def sampling(asked: Asked) -> Found:
    """What sampling all devices ten times a second costs."""
    settings = BenchSettings(nproc=asked.nproc, device=asked.device, batch=asked.batch)
    with tempfile.TemporaryDirectory() as name:
        steps = sampling_cost.measure(Path(name), asked.seconds / 2, 0.1, settings)
    if min(len(values) for values in steps.values()) < 2:
        raise LeftOut("too few blocks for an error")
    cost, error = sampling_cost.cost_of(steps)
    blocks = {state: len(values) for state, values in steps.items()}
    return {"cost": cost, "standard_error": error, "measurable": abs(cost) > 2 * error, "blocks": blocks}


STEPS: Mapping[str, Callable[[Asked], Found]] = {
    "bench": bench, "detection": detection, "selftest": selftest, "data_parallel": data_parallel, "links": links,
    "collectives": collectives, "sampling": sampling,
}  # fmt: skip


def keep(asked: Asked, found: Found) -> None:
    """Leave what is known so far, should the step be ended."""
    if asked.result is not None:
        Path(asked.result).write_text(json.dumps({"state": "ended", **found}))


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """A verdict other than 0 is a result; a record that is missing shows when it is read."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    return done


def main() -> None:
    """Carry out one step."""
    name, asked, result = sys.argv[1:]
    try:
        wanted = Asked(**{**json.loads(Path(asked).read_text()), "result": result})
        found: Found = {"state": "done", **STEPS[name](wanted)}
    except LeftOut as reason:
        found = {"state": "left out", "reason": str(reason)}
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main()

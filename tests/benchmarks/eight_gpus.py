"""All that a node with eight (or four) GPUs has to show, in one call of less than ten minutes:

    python -m tests.benchmarks.eight_gpus --out FOLDER [--nccl-tests FOLDER] [--nvbandwidth PATH] [--budget 9m]

A whole bench, healthy and changed passes, the selftest, DataParallel, links beside nvbandwidth, collectives beside
nccl-tests, and the cost of sampling. Each step has its share of the budget; one that would not fit in what is left of
it is left out, and the reason is kept. Writes results.json, results.md and the records of bench and selftest.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gpubalance.settings import parse_duration
from tests.benchmarks.eight_steps import STEPS, Asked

RESULTS, TABLE = "results.json", "results.md"
GRACE_S = 10.0
"""For a step that is ended to end what it started."""


@dataclass(frozen=True)
class Step:
    """A step and its part of the budget."""

    name: str
    share: float
    """Of what the budget has for steps that are not done yet: time that one does not need goes to the later ones."""
    least_s: float
    """It is not begun with less."""


PLAN = (
    Step("bench", 0.15, 30.0),
    Step("detection", 0.34, 60.0),
    Step("selftest", 0.22, 60.0),
    Step("data_parallel", 0.0, 0.0),
    Step("links", 0.09, 20.0),
    Step("collectives", 0.16, 40.0),
    Step("sampling", 0.04, 15.0),
)
"""The most wanted first. Changed passes are as many as fit (a pass takes about 10 s), the selftest is a quick one below
450 s. Where there is time for more than one call, --steps gives each its own: 10 changed passes need 250 s."""

Play = Callable[[str, Asked], dict[str, Any]]


def limits(left_s: float, step: Step, later: Sequence[Step]) -> float:
    """Seconds that a step may take: its share among the steps that are still to come; one that only reads takes none of
    it, and may take what is left.
    """
    shares = step.share + sum(each.share for each in later)
    return left_s if step.share == 0 else left_s * step.share / shares


def carry_out(
    plan: Sequence[Step], asked: Asked, budget_s: float, play: Play, now: Callable[[], float] = time.monotonic
) -> dict[str, dict[str, Any]]:
    """Results by step; what is left out says why."""
    begin_s = now()
    results: dict[str, dict[str, Any]] = {}
    for place, step in enumerate(plan):
        left_s = begin_s + budget_s - now()
        limit_s = max(limits(left_s, step, plan[place + 1 :]), min(step.least_s, left_s))
        if limit_s < step.least_s or left_s <= 0:
            reason = f"{max(0.0, left_s):.0f} s of the budget are left, it needs {step.least_s:.0f} s"
            results[step.name] = {"state": "left out", "reason": reason, "took_s": 0.0}
            continue
        print(f"{step.name}: at most {limit_s:.0f} s", file=sys.stderr)
        step_s = now()
        found = play(step.name, replace(asked, seconds=limit_s))
        results[step.name] = {**found, "took_s": now() - step_s}
    return results


def in_process(name: str, asked: Asked) -> dict[str, Any]:
    """Play a step in a process group of its own, which is ended when its time is over."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, result, said = (Path(folder) / each for each in ("asked.json", "result.json", "said.txt"))
        wanted.write_text(json.dumps(asdict(asked)))
        command = [sys.executable, "-m", "tests.benchmarks.eight_steps", name, str(wanted), str(result)]
        with said.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
            try:
                code = process.wait(asked.seconds)
            except subprocess.TimeoutExpired:
                so_far = json.loads(result.read_text()) if result.exists() else {}
                return {**so_far, "state": "ended", "reason": f"not done within {asked.seconds:.0f} s"}
            finally:
                _end(process)
        if result.exists():
            return dict(json.loads(result.read_text()))
        lines = said.read_text(errors="replace").strip().splitlines()
        return {"state": "failed", "reason": f"exit code {code}: {lines[-1] if lines else 'it said nothing'}"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a step and what it started: it is asked first, so that ranks are ended in order, and the next step begins
    when nothing of it is left.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None and not _group_lives(process.pid):
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        until_s = time.monotonic() + GRACE_S
        while (process.poll() is None or _group_lives(process.pid)) and time.monotonic() < until_s:
            time.sleep(0.05)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def table(results: dict[str, dict[str, Any]]) -> str:
    """A line for each step, in markdown."""
    lines = ["| step | took | what came out |", "|---|---|---|"]
    for name, found in results.items():
        what = SAID[name](found) if found["state"] == "done" else f"{found['state']}: {found['reason']}"
        lines.append(f"| {name} | {found['took_s']:.0f} s | {what} |")
    return "\n".join(lines) + "\n"


def _percent(share: float | None) -> str:
    return "not measured" if share is None else f"{100 * share:.2f} %"


def _said_links(found: dict[str, Any]) -> str:
    texts = [
        f"{name}: {of['copies']} copies, median {of['median_gb_per_s']:.1f} GB/s, spread "
        f"{_percent(of['standard_deviation'])}, smallest {of['smallest']:.4f} and largest {of['largest']:.4f} of it"
        for name, of in (found["spread"].items() if isinstance(found["spread"], dict) else ())
    ]
    ratios = [row["ratio"] for row in found.get("rows", [])]
    beside = (
        f"{min(ratios):.4f} to {max(ratios):.4f} of nvbandwidth's" if ratios else f"nvbandwidth: {found['nvbandwidth']}"
    )
    return "; ".join([*texts, beside])


SAID: dict[str, Callable[[dict[str, Any]], str]] = {
    "bench": lambda f: f"{f['seconds']:.1f} s (wanted: 60 s), {f['verdict']}: {f['sentence']}",
    "detection": lambda f: (
        f"{f['right']} of {f['changed']} named rightly, {f['false_alarms']} false alarms in {f['healthy']} healthy "
        f"passes (at most {_percent(f['false_alarms_at_most'])}), predicted less measured loss "
        f"{_percent(f['mean_difference'])}"
    ),
    "selftest": lambda f: f"{sum(f['rows'].values())} of {len(f['rows'])} rows right, {f['verdict']}: {f['sentence']}",
    "data_parallel": lambda f: (
        f"{f['step_ms']:.2f} ms against {f['one_device_step_ms']:.2f} ms on one device ({f['speed_up']:.2f} x), "
        f"shards {f['shards']}"
    ),
    "links": _said_links,
    "collectives": lambda f: f"{f['within']} of {len(f['rows'])} times as near to nccl-tests' as wanted",
    "sampling": lambda f: (
        f"{_percent(f['cost'])} +- {_percent(f['standard_error'])}, {'' if f['measurable'] else 'not '}measurable"
    ),
}  # fmt: skip


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--nproc", type=int, default=8)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--passes", type=int, default=10, help="changed passes, and one more healthy ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", default=",".join(STEPS), help="which steps, by name")
    parser.add_argument("--tiny", action="store_true", help="the least of everything, to try the script itself")
    parser.add_argument("--nccl-tests", type=Path)
    parser.add_argument("--nvbandwidth", type=Path)
    parser.add_argument("--budget", type=parse_duration, default=540.0)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, play: Play = in_process) -> None:
    """Carry out all steps, write, print."""
    options = parsed(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    asked = Asked(
        out=str(options.out.resolve()), nproc=options.nproc, device=options.device, passes=options.passes,
        seed=options.seed, seconds=0.0, tiny=options.tiny,
        nccl_tests=str(options.nccl_tests.resolve()) if options.nccl_tests else None,
        nvbandwidth=str(options.nvbandwidth.resolve()) if options.nvbandwidth else None,
    )  # fmt: skip
    chosen = options.steps.split(",")
    plan = [step for step in PLAN if step.name in chosen]
    results = carry_out(plan, asked, options.budget, play)
    (options.out / RESULTS).write_text(json.dumps({"asked": asdict(asked), "steps": results}, indent=1))
    (options.out / TABLE).write_text(table(results))
    print(table(results), end="")


if __name__ == "__main__":
    main()

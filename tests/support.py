"""Helpers that several tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from gpubalance.record.job import Job, Slot
from gpubalance.testing.scripted_rank import SCRIPT_VARIABLE

ROOT = Path(__file__).resolve().parent.parent
SCRIPTED = "gpubalance.testing.scripted_rank"
COMMAND = (sys.executable, "-m", "tests.command")
"""Our command line, disturbed by no other measurement on this machine. Needs the `command_environment`."""


def eventually(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The first truthy value of the condition; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {condition}")


def make_job(folder: Path, ranks: int = 2, **values: Any) -> Job:
    """A job of so many CPU ranks that log into the folder."""
    base: dict[str, Any] = {
        "attempt": 0,
        "crew": "ranks",
        "device": "cpu",
        "backend": "gloo",
        "slots": tuple(Slot(rank, None, None, ()) for rank in range(ranks)),
        "phases": ("solo", "ddp"),
        "model": {"kind": "mlp", "width": 64, "layers": 2, "dtype": "float32", "parameters": 8320},
        "global_batch": 8 * ranks,
        "per_rank_batch": 8,
        "faults": (),
        "budget_s": None,
        "group_timeout_s": 30.0,
        "log_folder": str(folder),
        "seed": 1,
    }
    return Job(**{**base, **values})


def write_script(folder: Path, script: dict[str, Any]) -> dict[str, str]:
    """Save a script for scripted ranks; returns the variable that names it."""
    path = folder / "script.json"
    path.write_text(json.dumps(script))
    return {SCRIPT_VARIABLE: str(path)}


HEALTHY = [
    ["phase", "solo"],
    ["end"],
    ["phase", "ddp"],
    ["blocks", 24, 100.0],
    ["overlapped", 8, 120.0],
    ["end"],
]


def slow(compute_ms: float) -> list[list[Any]]:
    """A healthy script with another compute time."""
    return [["blocks", 24, compute_ms] if step[0] == "blocks" else step for step in HEALTHY]


BOUND = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execv(sys.argv[2], sys.argv[2:])"
"""What a launcher does that binds: python -c BOUND CORE COMMAND."""


def command_environment(**values: str) -> dict[str, str]:
    """An environment for our command line: this source tree, nothing inherited that steers it."""
    steering = ("GPUBALANCE_", "CUDA_", "NVIDIA_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
    path = os.pathsep.join(entry for entry in (str(ROOT), kept.get("PYTHONPATH")) if entry)
    return {**kept, "PYTHONPATH": path, "GPUBALANCE_BENCH_FORCE": "1", **values}


def run_cli(*arguments: str, env: Mapping[str, str] | None = None, **values: Any) -> subprocess.CompletedProcess[str]:
    """Run `gpubalance ARGUMENTS` to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env=dict(env) if env is not None else command_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        **values,
    )


BENCH_WITH = """
import sys
from tests.command import take_own_lock
take_own_lock()
from gpubalance.cli import bench_run, entry
from gpubalance.session import bench as story
from pathlib import Path
stand_in = Path({stand_in!r}) if {stand_in!r} else None
bench_run.bench = lambda *given: story.bench(*given, module={module!r}, stand_in=stand_in)
sys.argv[0] = "gpubalance"
entry.main()
"""


def scripted_bench_command(*arguments: str, stand_in: Path | None = None) -> list[str]:
    """The command `gpubalance bench ARGUMENTS` with scripted ranks instead of real ones."""
    return bench_command(*arguments, stand_in=stand_in, module=SCRIPTED)


def bench_command(*arguments: str, stand_in: Path | None, module: str) -> list[str]:
    """The command `gpubalance bench ARGUMENTS` with this module as rank and a stand-in NVML."""
    code = BENCH_WITH.format(module=module, stand_in=str(stand_in) if stand_in else "")
    return [sys.executable, "-c", code, "bench", *arguments]


def not_none(table: Any) -> Any:
    """A table as a file gives it back: empty cells are not numbers. pandas 2 warns of the difference to None."""
    return table.map(lambda value: float("nan") if value is None else value)


def children_of(pid: int) -> list[psutil.Process]:
    """All descendants that live now."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def alive(processes: list[psutil.Process]) -> list[int]:
    """Pids of those that are still running; zombies are not."""
    return [p.pid for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

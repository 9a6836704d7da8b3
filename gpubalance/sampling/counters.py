"""Reads the slow counters once, in a process of its own, and adds them to the sensor's log.

Why a process, and why it notes no calls: on driver 580.159.04 with two H200s, processes that read these counters
(energy, violations, ECC, PCIe and NVLink errors) and noted each call were killed by SIGSEGV inside Python's own memory,
within seconds when sampling, in 12 of 13 looks when not. Processes that read the same counters and noted nothing never
were, in some 600 looks. The cause was not found. A process of its own cannot take the samples with it.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpubalance.child import die_with_parent
from gpubalance.node.nvml import open_nvml
from gpubalance.node.readings import COUNTERS, take
from gpubalance.record.rank_log import RankLog

LIMIT_S = 10.0
"""A look takes 0.2 s; NVLink's counters alone take 15 ms each."""


class CounterLooks:
    """The sensor's side: starts looks, never waits for one while sampling, and says when one failed."""

    def __init__(self, folder: Path, nvml: Sequence[int], devices: Sequence[int], stand_in: Path | None) -> None:
        self._command = [sys.executable, "-m", "gpubalance.sampling.counters", "--folder", str(folder)]
        self._command += ["--parent", str(os.getpid()), "--nvml", _joined(nvml), "--devices", _joined(devices)]
        self._command += ["--stand-in", str(stand_in)] if stand_in is not None else []
        self._running: list[tuple[str, float, subprocess.Popen[bytes]]] = []

    def start(self, edge: str) -> None:
        """Have all counters read now."""
        process = subprocess.Popen([*self._command, "--edge", edge], stdin=subprocess.DEVNULL)
        self._running.append((edge, time.monotonic(), process))

    def failures(self) -> list[tuple[str, str]]:
        """(edge, reason) of the looks that failed since the last call; ends those that take too long."""
        failed = []
        still = []
        for edge, begin, process in self._running:
            code = process.poll()
            if code is None and time.monotonic() - begin <= LIMIT_S:
                still.append((edge, begin, process))
            elif code is None:
                failed.append((edge, f"the reading process did not answer within {LIMIT_S:g} s"))
                process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.1)
            elif code != 0:
                failed.append((edge, f"the reading process ended with {code}"))
        self._running = still
        return failed

    def wait(self, seconds: float) -> None:
        """Give the looks that are under way so much time together."""
        deadline = time.monotonic() + seconds
        for _, _, process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, deadline - time.monotonic()))


def _joined(numbers: Sequence[int]) -> str:
    return ",".join(str(number) for number in numbers)


def main() -> None:
    """Look once, as a child of the sensor."""
    parser = argparse.ArgumentParser(prog="python -m gpubalance.sampling.counters", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--nvml", required=True)
    parser.add_argument("--devices", required=True)
    parser.add_argument("--edge", required=True)
    parser.add_argument("--stand-in", type=Path)
    options = parser.parse_args()
    faulthandler.enable()
    die_with_parent(options.parent)
    if options.stand_in is not None:
        from gpubalance.testing.stand_in_nvml import install

        install(options.stand_in)
    nvml = open_nvml()
    if isinstance(nvml, str):
        sys.exit(f"NVML cannot be opened: {nvml}")
    log = RankLog(options.folder / "sensor.jsonl")
    for index, device in zip(options.nvml.split(","), options.devices.split(","), strict=True):
        values, missing = take(COUNTERS, nvml, int(index))
        log.write("counters", edge=options.edge, device=int(device), values=values, missing=missing)
    sys.stderr.flush()
    os._exit(0)  # closing NVML can hang; the kernel closes it as well


if __name__ == "__main__":
    main()

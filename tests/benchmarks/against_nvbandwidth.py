"""Copies beside nvbandwidth, in alternation: `python -m tests.benchmarks.against_nvbandwidth NVBANDWIDTH [--out FILE]`.

Each round runs the links phase and then nvbandwidth's copy-engine tests on the same devices; shown is the median of the
rounds on both sides, and their ratio. nvbandwidth's write test is what corresponds: the source's copy engine writes.
With one GPU there is nothing between GPUs, and the copies from and to the host are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from gpubalance.record.file import load_run

TESTS = {
    "device_to_device_memcpy_write_ce": "peer",
    "host_to_device_memcpy_ce": "to device",
    "device_to_host_memcpy_ce": "from device",
}
CANNOT_LOAD = 127
"""Exit code of the loader, and of a shell, for a program that cannot be started."""
Rates = dict[str, list[float]]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nvbandwidth", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="save everything as JSON")
    options = parser.parse_args()
    try:
        said = version_of(options.nvbandwidth)
        ours, theirs = in_turns(options.nvbandwidth, options.rounds)
    except CannotCompareError as error:
        sys.exit(str(error))
    rows = compared(ours, theirs)
    show(rows)
    if options.out is not None:
        options.out.write_text(json.dumps({"nvbandwidth": said, "rounds": options.rounds, "rows": rows}, indent=1))


class CannotCompareError(Exception):
    """Why there is nothing to compare, in words."""


def version_of(binary: Path) -> str | None:
    """The first line that it prints. Raises CannotCompareError when it cannot be started."""
    printed = _output(binary, "--help")
    return printed.splitlines()[0] if printed else None


def in_turns(binary: Path, rounds: int, deadline_s: float = math.inf) -> tuple[Rates, Rates]:
    """Both, one after the other, so often; no new round begins when the one before it would not have fitted before the
    deadline (monotonic). Raises CannotCompareError.
    """
    ours: Rates = defaultdict(list)
    theirs: Rates = defaultdict(list)
    took_s = 0.0
    for number in range(rounds):
        begin_s = time.monotonic()
        if number and begin_s + took_s > deadline_s:
            break
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for side, found in ((ours, run_ours()), (theirs, run_theirs(binary))):
            for what, rate in found.items():
                side[what].append(rate)
        took_s = time.monotonic() - begin_s
    return ours, theirs


def run_ours() -> dict[str, float]:
    """GB/s of each copy by the links phase; devices in CUDA's order, as nvbandwidth has them."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "run.json"
        command = [sys.executable, "-m", "gpubalance", "bench", "--workload", "links", "--out", str(path)]
        done = subprocess.run([*command, "--fail-on", "never"], check=False, capture_output=True, text=True)
        links = load_run(path).links if path.exists() else None
    if links is None:
        said = (done.stdout.strip() or done.stderr.strip() or "nothing").splitlines()[-1]
        raise CannotCompareError(f"gpubalance measured no link (exit code {done.returncode}), it said: {said}")
    rates = {f"peer {p.source} -> {p.target}": statistics.median(p.looks_gb_per_s) for p in links.peers}
    rates |= {f"to device {d.device}": d.to_device_gb_per_s for d in links.devices if d.to_device_gb_per_s}
    return rates | {f"from device {d.device}": d.from_device_gb_per_s for d in links.devices if d.from_device_gb_per_s}


def run_theirs(binary: Path) -> dict[str, float]:
    """The same by nvbandwidth, from its JSON."""
    printed = _output(binary, "-j", "-t", *TESTS)
    return rates_in(printed)


def rates_in(printed: str) -> dict[str, float]:
    """GB/s of each copy in what it printed. A test that it left out, as it does with the one between GPUs where there
    is only one, has no matrix. Raises CannotCompareError where there is no JSON.
    """
    try:
        document = json.loads(printed[printed.index("{") :])
    except ValueError:
        raise CannotCompareError(f"nvbandwidth printed no JSON but: {printed.strip()[:300] or 'nothing'}") from None
    rates = {}
    for case in document["nvbandwidth"].get("testcases", []):
        kind = TESTS.get(case["name"])
        for row, cells in enumerate(case.get("bandwidth_matrix", []) if kind else []):
            for column, cell in enumerate(cells):
                if kind is not None and cell != "N/A":
                    rates[_named(kind, row, column)] = float(cell)
    return rates


def _output(binary: Path, *arguments: str) -> str:
    """What it prints, whatever its exit code: a test that it leaves out is one of its reasons for another than 0."""
    try:
        done = subprocess.run([binary, *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotCompareError(f"{binary} cannot be started: {error.strerror}") from error
    if done.returncode == CANNOT_LOAD:
        missing = re.search(r"loading shared libraries: ([^:\s]+)", done.stderr)
        why = f"the shared library {missing[1]} is missing" if missing else done.stderr.strip() or "it did not say why"
        raise CannotCompareError(f"{binary} cannot be started: {why}")
    if done.returncode and not done.stdout.strip():
        said = done.stderr.strip() or "nothing"
        raise CannotCompareError(f"{binary} ended with exit code {done.returncode} and said: {said[:300]}")
    return done.stdout


def _named(kind: str, row: int, column: int) -> str:
    """Its write test copies from the device of the row to that of the column (testcases_ce.cpp); its heading's arrow
    points the other way. Its host tests have one row.
    """
    return f"peer {row} -> {column}" if kind == "peer" else f"{kind} {column}"


def compared(ours: Rates, theirs: Rates) -> list[dict[str, Any]]:
    """A row for each copy that both measured."""
    rows = []
    for what in ours.keys() & theirs.keys():
        mine, other = statistics.median(ours[what]), statistics.median(theirs[what])
        rows.append({"copy": what, "gpubalance_gb_per_s": ours[what], "nvbandwidth_gb_per_s": theirs[what],
                     "median": mine, "nvbandwidth_median": other, "ratio": mine / other})  # fmt: skip
    return sorted(rows, key=lambda row: str(row["copy"]))


def show(rows: list[dict[str, Any]]) -> None:
    """A line for each."""
    print(f"{'copy':<20} {'gpubalance':>10} {'nvbandwidth':>11}  ratio")
    for row in rows:
        print(f"{row['copy']:<20} {row['median']:10.2f} {row['nvbandwidth_median']:11.2f}  {row['ratio']:.4f}")


if __name__ == "__main__":
    main()

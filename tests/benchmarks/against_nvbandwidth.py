"""Copies beside nvbandwidth, in alternation: `python -m tests.benchmarks.against_nvbandwidth NVBANDWIDTH [--out FILE]`.

Each round runs the links phase and then nvbandwidth's copy-engine tests on the same devices; shown is the median of the
rounds on both sides, and their ratio. nvbandwidth's write test is what corresponds: the source's copy engine writes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from gpubalance.record.file import load_run

TESTS = {
    "device_to_device_memcpy_write_ce": "peer",
    "host_to_device_memcpy_ce": "to device",
    "device_to_host_memcpy_ce": "from device",
}
Rates = dict[str, list[float]]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nvbandwidth", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="save everything as JSON")
    options = parser.parse_args()
    ours: Rates = defaultdict(list)
    theirs: Rates = defaultdict(list)
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        for side, found in ((ours, run_ours()), (theirs, run_theirs(options.nvbandwidth))):
            for what, rate in found.items():
                side[what].append(rate)
    rows = compared(ours, theirs)
    show(rows)
    if options.out is not None:
        version = subprocess.run([options.nvbandwidth, "--help"], capture_output=True, text=True, check=False).stdout
        said = version.splitlines()[0] if version else None
        options.out.write_text(json.dumps({"nvbandwidth": said, "rounds": options.rounds, "rows": rows}, indent=1))


def run_ours() -> dict[str, float]:
    """GB/s of each copy by the links phase; devices in CUDA's order, as nvbandwidth has them."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "run.json"
        command = [sys.executable, "-m", "gpubalance", "bench", "--workload", "links", "--out", str(path)]
        subprocess.run([*command, "--fail-on", "never"], check=True, stdout=subprocess.DEVNULL)
        links = load_run(path).links
    assert links is not None
    rates = {f"peer {p.source} -> {p.target}": statistics.median(p.looks_gb_per_s) for p in links.peers}
    rates |= {f"to device {d.device}": d.to_device_gb_per_s for d in links.devices if d.to_device_gb_per_s}
    return rates | {f"from device {d.device}": d.from_device_gb_per_s for d in links.devices if d.from_device_gb_per_s}


def run_theirs(binary: Path) -> dict[str, float]:
    """The same by nvbandwidth, from its JSON."""
    done = subprocess.run([binary, "-j", "-t", *TESTS], capture_output=True, text=True, check=True)
    document = json.loads(done.stdout[done.stdout.index("{") :])
    rates = {}
    for case in document["nvbandwidth"]["testcases"]:
        kind = TESTS[case["name"]]
        for row, cells in enumerate(case["bandwidth_matrix"]):
            for column, cell in enumerate(cells):
                if cell != "N/A":
                    rates[_named(kind, row, column)] = float(cell)
    return rates


def _named(kind: str, row: int, column: int) -> str:
    """Its peer tests print GPU(row) <- GPU(column); its host tests have one row."""
    return f"peer {column} -> {row}" if kind == "peer" else f"{kind} {column}"


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

"""Bus bandwidth beside nccl-tests' on the same machine: `python -m tests.benchmarks.against_nccl_tests FOLDER`.

FOLDER holds all_reduce_perf and its kin, built against the NCCL that torch loads (both versions are printed). The two
programs take turns, five times each or as often as --within lets them; printed are medians. Wanted: all_reduce within
1 %, the others within 2 %, from 64 MiB to 4 GiB; small messages replayed from a graph within 15 % of nccl-tests' -G.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gpubalance.settings import parse_duration

BINARIES = {
    "all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf", "broadcast": "broadcast_perf", "reduce": "reduce_perf", "send_recv": "sendrecv_perf",
}  # fmt: skip
TURNS = 5
LARGE, SMALL = ("64M", "4G", 2), ("8", "64K", 8)
LIMITS = {"all_reduce": 0.01}
OTHERS, SMALL_LIMIT = 0.02, 0.15
LARGE_SHARE = 0.6
"""Of the time, for large messages; without the rest the small ones are left out."""

ENVIRONMENT = {"NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE": "1", "NCCL_DEBUG": "WARN"}
"""nccl-tests' way of scheduling, and no pass that reads NCCL's log."""

Key = tuple[str, str, int]
Times = dict[Key, list[float]]
Sizes = tuple[str, str, int]


def theirs(folder: Path, name: str, sizes: Sizes, gpus: int, *, graph: bool) -> tuple[dict[Key, float], str]:
    """Microseconds by collective, placement and size; and the line with versions."""
    begin, end, factor = sizes
    command = [str(folder / BINARIES[name]), "-g", str(gpus), "-b", begin, "-e", end, "-f", str(factor)]
    text = subprocess.run(
        [*command, *(["-G", "20"] if graph else [])], capture_output=True, text=True, check=True
    ).stdout
    found: dict[Key, float] = {}
    for line in text.splitlines():
        cells = line.split()
        if not re.match(r"\s+\d", line) or len(cells) < 12 or cells[0] == "0":
            continue
        *_, out_time, _, _, _, in_time, _, _, _ = cells
        found[name, "out_of_place", int(cells[0])] = float(out_time)
        found[name, "in_place", int(cells[0])] = float(in_time)
    return found, text.splitlines()[0]


def ours(names: Sequence[str], sizes: Sizes, gpus: int, *, mode: str) -> tuple[dict[Key, float], str]:
    """The same of this program, of all these collectives in one run."""
    begin, end, factor = sizes
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.json"
        subprocess.run(
            [sys.executable, "-m", "gpubalance", "bench", "--nproc", str(gpus), "--workload", "collectives",
             "--collectives", ",".join(names), "--sizes", f"{begin}:{end}:x{factor}", "--force", "--fail-on", "never",
             "--out", str(out)],
            env={**os.environ, **ENVIRONMENT}, capture_output=True, check=True,
        )  # fmt: skip
        run = json.loads(out.read_text())["run"]
    rows = [row for row in run["collectives"] if row["mode"] == mode and row["backend"] == "nccl"]
    times = {(row["collective"], row["placement"], row["size_bytes"]): row["time_us"] for row in rows}
    return times, f"gpubalance {run['gpubalance_version']} {run['ranks'][0]['versions']}"


def in_turns(
    folder: Path, gpus: int, *, graph: bool, turns: int = TURNS, deadline_s: float = math.inf
) -> tuple[list[dict[str, object]], list[str]]:
    """Rows of all collectives whose program is there, in as many turns as fit before the deadline (monotonic), but one
    at least; and the versions that were said.
    """
    sizes = SMALL if graph else LARGE
    names = [name for name, binary in BINARIES.items() if (folder / binary).exists()]
    reference: Times = defaultdict(list)
    own: Times = defaultdict(list)
    said: list[str] = []
    took_s = 0.0
    for number in range(turns if names else 0):
        begin_s = time.monotonic()
        if number and begin_s + took_s > deadline_s:
            break
        both = [(reference, *theirs(folder, name, sizes, gpus, graph=graph)) for name in names]
        both.append((own, *ours(names, sizes, gpus, mode="graph" if graph else "eager")))
        for kept, times, versions in both:
            said.append(versions)
            for key, value in times.items():
                kept[key].append(value)
        took_s = time.monotonic() - begin_s
    return rows_of(reference, own, graph=graph), list(dict.fromkeys(said))


def rows_of(reference: Times, own: Times, *, graph: bool) -> list[dict[str, object]]:
    """A row for each message that both timed: medians, and whether they are as near as is wanted."""
    rows: list[dict[str, object]] = []
    for key in sorted(set(reference) & set(own), key=lambda key: (list(BINARIES).index(key[0]), key[1], key[2])):
        middle = [statistics.median(times[key]) for times in (reference, own)]
        limit = SMALL_LIMIT if graph else LIMITS.get(key[0], OTHERS)
        rows.append({
            "collective": key[0], "mode": "graph" if graph else "eager", "placement": key[1],
            "size_bytes": key[2],
            "nccl_tests_us": middle[0], "gpubalance_us": middle[1], "difference": middle[1] / middle[0] - 1,
            "wanted": limit, "within": abs(middle[1] / middle[0] - 1) <= limit,
            "all_nccl_tests_us": reference[key], "all_gpubalance_us": own[key],
        })  # fmt: skip
    return rows


def both_modes(
    folder: Path, gpus: int, *, turns: int = TURNS, within_s: float = math.inf
) -> tuple[list[dict[str, object]], list[str], str | None]:
    """Rows of large messages and of small ones from a graph, versions, and what there was no time for."""
    begin_s = time.monotonic()
    rows, versions = in_turns(folder, gpus, graph=False, turns=turns, deadline_s=begin_s + LARGE_SHARE * within_s)
    left_s = begin_s + within_s - time.monotonic()
    if left_s < (1 - LARGE_SHARE) * within_s:
        return rows, versions, f"small messages from a graph: {left_s:.0f} s were left"
    small, said = in_turns(folder, gpus, graph=True, turns=turns, deadline_s=begin_s + within_s)
    return rows + small, list(dict.fromkeys(versions + said)), None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--within", type=parse_duration, default=math.inf)
    parser.add_argument("--out", type=Path, help="save everything as JSON")
    options = parser.parse_args(arguments)
    rows, versions, left_out = both_modes(options.folder, options.gpus, turns=options.turns, within_s=options.within)
    table = Table("collective", "mode", "placement", "size", "nccl-tests us", "gpubalance us", "difference", "wanted")
    for row in rows:
        wanted = f"{100 * float(str(row['wanted'])):g} %"
        difference = f"{100 * float(str(row['difference'])):+.2f} %{'' if row['within'] else ' !'}"
        table.add_row(
            str(row["collective"]), str(row["mode"]), str(row["placement"]), str(row["size_bytes"]),
            f"{row['nccl_tests_us']:.2f}", f"{row['gpubalance_us']:.2f}", difference, wanted,
        )  # fmt: skip
    Console(width=120).print(table)
    print(*versions, *([f"left out: {left_out}"] if left_out else []), sep="\n")
    if options.out:
        options.out.write_text(
            json.dumps({"gpus": options.gpus, "versions": versions, "left_out": left_out, "rows": rows}, indent=1)
        )


if __name__ == "__main__":
    main()

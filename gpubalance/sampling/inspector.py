"""Asks one GPU everything about its health, in a process of its own: `python -m gpubalance.sampling.inspector`.

One process a GPU, so that a sick card costs us its own answers and no other's. It notes no calls (see `counters` for
why): when one takes too long, a watchdog thread of faulthandler writes the stack, and the binding's function on it is
the call that never returned. That works even while the kernel holds the main thread.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from gpubalance.child import die_with_parent
from gpubalance.node.details import read_links, read_peers, read_values
from gpubalance.node.nvml import Nvml, open_nvml
from gpubalance.record.rank_log import RankLog

CALL_LIMIT_S = 5.0
"""All readings of one part take 0.2 s on an H200; a part that takes this long will not come back."""

INIT_LIMIT_S = 20.0
"""The first call initialises the driver; without persistence mode that takes seconds."""

_CALL = re.compile(r" in (nvml\w+)\n")  # a line that is still being written has no end


def log_path(folder: Path, index: int) -> Path:
    """The log of the process that asks the GPU with this NVML index."""
    return folder / f"inspector-{index}.jsonl"


def stack_path(folder: Path, index: int) -> Path:
    """Where its stack goes when a call takes too long."""
    return folder / f"inspector-{index}.stack"


def hung_call(stack: str) -> str | None:
    """The NVML call on a stack, innermost first."""
    found = _CALL.search(stack)
    return found[1] if found else None


def inspect(nvml: Nvml, index: int, count: int, log: RankLog, watch: Callable[[], None]) -> None:
    """Read all parts, each under the watchdog, and log each as it is there."""
    watch()
    values, missing = read_values(nvml, index)
    log.write("values", values=values, missing=missing)
    watch()
    links, missing = read_links(nvml, index)
    log.write("links", links=links, missing=missing)
    watch()
    log.write("peers", peers=read_peers(nvml, index, count))
    faulthandler.cancel_dump_traceback_later()


def main() -> None:
    """Run as a child of the parent whose pid is given."""
    parser = argparse.ArgumentParser(prog="python -m gpubalance.sampling.inspector", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--nvml", type=int, required=True)
    parser.add_argument("--count", type=int, required=True, help="how many GPUs NVML lists")
    parser.add_argument("--limit", type=float, required=True, help="seconds that a part may take")
    parser.add_argument("--init-limit", type=float, required=True, help="seconds that opening NVML may take")
    parser.add_argument("--stand-in", type=Path)
    options = parser.parse_args()
    faulthandler.enable()
    die_with_parent(options.parent)
    if options.stand_in is not None:
        from gpubalance.testing.stand_in_nvml import install

        install(options.stand_in)
    log = RankLog(log_path(options.folder, options.nvml))
    with stack_path(options.folder, options.nvml).open("w") as stack:
        log.write("begin")
        faulthandler.dump_traceback_later(options.init_limit, file=stack)
        nvml = open_nvml()
        if isinstance(nvml, str):
            log.write("failed", reason=f"NVML cannot be opened: {nvml}")
        else:
            log.write("opened")
            watch = functools.partial(faulthandler.dump_traceback_later, options.limit, file=stack)
            inspect(nvml, options.nvml, options.count, log, watch)
        log.write("bye")
    sys.stderr.flush()
    os._exit(0)  # closing NVML can hang; the kernel closes it as well


if __name__ == "__main__":
    main()

"""A process that plays a fault: `python -m gpubalance.workloads.rival_main PARENT hog CORE`, or `... rival ORDINAL
DTYPE`. It says `ready` on stdout when it is at work, and works until it is killed.
"""

from __future__ import annotations

import os
import sys

from gpubalance.child import die_with_parent

EDGE = 8192
QUEUED = 8


def main() -> None:
    """Die with the parent; until then do as told."""
    parent, kind, *values = sys.argv[1:]
    die_with_parent(int(parent))
    if kind == "hog":
        _hog(int(values[0]))
    _multiply(int(values[0]), values[1])


def _ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def _hog(core: int) -> None:
    """Keep one core busy."""
    os.sched_setaffinity(0, {core})
    _ready()
    while True:
        pass


def _multiply(ordinal: int, dtype: str) -> None:
    """Multiply random matrices on one GPU; the queue is kept short, so that memory and kill stay simple."""
    import torch

    device = torch.device("cuda", ordinal)
    torch.cuda.set_device(device)
    a, b = (torch.randn(EDGE, EDGE, device=device).to(getattr(torch, dtype)) for _ in range(2))
    out = a @ b
    torch.cuda.synchronize()
    _ready()
    while True:
        for _ in range(QUEUED):
            torch.mm(a, b, out=out)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()

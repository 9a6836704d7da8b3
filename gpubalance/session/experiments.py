"""`--what-if`: the same all-reduces in fresh processes with a variable and without it, so that its cost is a number."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from gpubalance.record.experiment import Arm, Experiment, TouchRow
from gpubalance.record.job import Job
from gpubalance.session.trial import MIB, Touched, run_together, touch_job

SIZES = (64 * MIB, 1024 * MIB)
"""Gradients of a small and of a large model."""

LIMIT_S = 90.0
"""For each side; healthy GPUs need 15 s, most of it for importing torch."""

P2P = "NCCL_P2P_DISABLE"
FIRST_NUMBER = 500
"""Above the numbers of a search after a hang."""

Say = Callable[[str], None]


def run_p2p(
    job: Job, environment: Mapping[str, str], found: str | None, module: str, pids: dict[int, int], say: Say
) -> Experiment:
    """Peer-to-peer as NCCL does it, then without. `found` is what NCCL_P2P_DISABLE was before; 0 is its default."""
    arms = []
    for number, value in enumerate(("0", "1")):
        say(f"what if: all-reduce with {P2P}={value}")
        trial = touch_job(job, range(len(job.slots)), FIRST_NUMBER + number, {P2P: value}, SIZES)
        (touched,) = run_together([trial], environment, module, time.monotonic() + LIMIT_S, pids)
        arms.append(_arm(value, touched))
    return Experiment(name="p2p", variable=P2P, found=found, ranks=len(job.slots), arms=arms)


def _arm(value: str, touched: Touched) -> Arm:
    rows = [TouchRow(**{key: row[key] for key in TouchRow.model_fields}) for row in touched.rows]
    if touched.outcome in ("works", "wrong"):
        sizes = {row.size_bytes for row in rows}
        missing = None if sizes >= set(SIZES) else "a device has too little free memory for the largest size"
    else:
        missing = f"it {touched.outcome}: {touched.message}" if touched.message else f"it {touched.outcome}"
    return Arm(value=value, rows=rows, missing=missing)

"""The steps of a ddp attempt as arrays. Shapes are always (ranks, blocks, steps); times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from gpubalance.analysis.common_mode import Array, remove_common_mode
from gpubalance.record.timings import DdpAttempt

__all__ = ["Array", "Steps", "arrays_of"]


@dataclass(frozen=True)
class Steps:
    """Fenced steps of all ranks, and the overlapped step time."""

    compute: Array
    """(ranks, blocks, steps): work that needs no other rank, A in the documentation."""
    fence: Array
    """(ranks, blocks, steps): wait for the slowest rank plus the floor of a tiny all-reduce."""
    transfer: Array
    """(ranks, blocks, steps): all-reduce of all gradients, X_f in the documentation."""
    units: Array
    """(ranks,): work units a step, 1 is the planned share."""
    overlapped_ms: float | None
    """Mean step of real, overlapped training, T in the documentation; None when it did not run."""
    block_begin_s: Array | None = None
    """(blocks,): when each block began on the first rank, in seconds of the run; None where nobody noted it."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return int(self.compute.shape[0])

    @property
    def blocks(self) -> int:
        """Number of blocks that every rank finished."""
        return int(self.compute.shape[1])

    def block_medians(self) -> Array:
        """(ranks, blocks): median compute of each block."""
        return self._block_medians

    def medians(self) -> Array:
        """(ranks,): median compute over all steps."""
        return self._medians

    @cached_property
    def ordinary(self) -> tuple[Array, float]:
        """Compute without what slows all ranks in one step, and the share of time that is left."""
        return remove_common_mode(self.compute, self.medians())

    @cached_property
    def _block_medians(self) -> Array:
        return np.median(self.compute, axis=2)

    @cached_property
    def _medians(self) -> Array:
        """Asked for by most facts, and of thousands of ranks a tenth of a second each time."""
        return np.median(self.compute.reshape(self.ranks, -1), axis=1)

    def wait_ms(self) -> Array:
        """(ranks,): mean wait, which is the fence less the smallest fence of any rank in any step."""
        return np.asarray((self.fence - self.fence.min()).mean(axis=(1, 2)))


def arrays_of(attempt: DdpAttempt) -> Steps:
    """The arrays of one attempt."""
    ranks = attempt.ranks
    shape = (len(ranks), len(ranks[0].fenced), -1)

    def stack(name: str) -> Array:
        """In one pass over flat values: numpy takes three times as long for lists of lists of lists."""
        values = chain.from_iterable(getattr(block, name) for rank in ranks for block in rank.fenced)
        return np.fromiter(values, dtype=float).reshape(shape)

    overlapped = [rank.overlapped_step_ms for rank in ranks]
    common = min(len(values) for values in overlapped)
    return Steps(
        compute=stack("compute_ms"),
        fence=stack("fence_ms"),
        transfer=stack("transfer_ms"),
        units=np.array([rank.units_per_step for rank in ranks]),
        overlapped_ms=float(np.mean([values[:common] for values in overlapped])) if common else None,
        block_begin_s=np.array([block.begin_s for block in attempt.ranks[0].fenced]),
    )

"""What every workload is handed: who this rank is, where it works, whom it talks to and where it writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from gpubalance.record.job import Job, Slot
from gpubalance.record.rank_log import RankLog
from gpubalance.workloads.clock import Clock


@dataclass(frozen=True)
class Context:
    """One rank of one crew. `data` carries what is measured; control traffic goes over the default gloo group."""

    job: Job
    rank: int
    world: int
    slot: Slot
    device: torch.device
    data: dist.ProcessGroup | None
    clock: Clock
    log: RankLog

    @contextmanager
    def control(self) -> Iterator[None]:
        """Mark control traffic as a collective, so that an error in it is known to be somebody else's fault."""
        before, self.log.where = self.log.where, "collective"
        yield
        self.log.where = before

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        with self.control():
            dist.all_gather_object(values, value)
        return values

    def agree_on_max(self, value: float) -> float:
        """The largest of all ranks' values."""
        return max(float(each) for each in self.gather(value))

    def meet(self) -> None:
        """Wait for all ranks, on the host."""
        self.gather(None)

"""One training step, taken apart: local work that needs nobody, and the update of the weights.

Gradients live in one flat buffer, so that "all gradients" is one tensor for the fenced all-reduce, and backward adds
into it in place, which is what DDP's bucket views do as well: the fenced and the overlapped run do the same work.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.parallel import DistributedDataParallel

from gpubalance.workloads.context import Context
from gpubalance.workloads.inject import Faults
from gpubalance.workloads.models import WithLoss, build_batch, build_model
from gpubalance.workloads.sgd import Sgd
from gpubalance.workloads.timed_loop import FenceCounter

LEARNING_RATE = 1e-6
"""Small enough that thousands of steps leave the weights, and with them the power drawn, as they are."""


class TrainingStep:
    """A model, a batch that stays on the device, an optimizer, and the faults of this rank."""

    def __init__(self, context: Context, faults: Faults, batch_seed: int) -> None:
        job = context.job
        self.planned = job.per_rank_batch
        self.samples = max(1, round(self.planned * faults.data_factor))
        self.faults = faults
        self.model: WithLoss = build_model(job.model, context.device, job.seed)
        self.batch = build_batch(job.model, self.samples, context.device, batch_seed)
        self.optimizer = Sgd(self.model.parameters(), LEARNING_RATE)
        self.gradients = self._flat_gradients()
        self.loss = torch.zeros(1)
        """Last loss, detached: a loss that keeps its graph keeps autograd's accumulators on the stream where they were
        made, and a later capture of the step on another stream fails (cudaErrorStreamCaptureImplicit)."""

    def _flat_gradients(self) -> torch.Tensor:
        parameters = list(self.model.parameters())
        flat = torch.zeros(sum(p.numel() for p in parameters), device=parameters[0].device)
        offset = 0
        for parameter in parameters:
            parameter.grad = flat[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()
        return flat

    def local(self, forward: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Forward and backward of this rank's batch, with its faults; gradients add up in `gradients`."""
        self.faults.in_step()
        self.gradients.zero_()
        loss = forward(self.batch)
        loss.backward()
        self.loss = loss.detach()

    def captured(self) -> None:
        """The same as `local` and `update`, without anything that a CUDA graph cannot hold."""
        self.faults.on_device()
        self.gradients.zero_()
        self.model(self.batch).backward()
        self.update()

    def overlapped(self, ddp: DistributedDataParallel, fences: FenceCounter) -> None:
        """A whole step as real training does it: DDP sends each bucket while backward goes on."""
        self.faults.in_step()
        self.optimizer.zero_gradients()
        loss = ddp(self.batch)
        with fences.entering():
            loss.backward()
        self.update()
        self.loss = loss.detach()

    def update(self) -> None:
        """One step of the optimizer."""
        self.optimizer.step()

    def release_gradients(self) -> None:
        """Let DDP put its own bucket views in place of the flat buffer."""
        for parameter in self.model.parameters():
            parameter.grad = None

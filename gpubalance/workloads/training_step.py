"""One training step, taken apart: local work that needs nobody, and the update of the weights.

Gradients live in one flat buffer, so that "all gradients" is one tensor for the fenced all-reduce, and backward adds
into it in place, which is what DDP's bucket views do as well: the fenced and the overlapped run do the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

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
    """A model, a batch that stays on the device, an optimizer, and the faults of this rank.

    A step is `fetch`, `copy`, `forward`, `backward`, `update`, in this order, whoever drives it.
    """

    def __init__(self, context: Context, faults: Faults, batch_seed: int) -> None:
        self._model_spec, self._device, self._batch_seed = context.job.model, context.device, batch_seed
        self.planned = context.job.per_rank_batch
        self.model: WithLoss = build_model(context.job.model, context.device, context.job.seed)
        self.optimizer = Sgd(self.model.parameters(), LEARNING_RATE)
        self.gradients = torch.zeros(sum(p.numel() for p in self.model.parameters()), device=context.device)
        self.attach_gradients()
        self.planned_batch = self._batch_of(self.planned)
        self.use(faults)
        self._graph = self.loss = torch.zeros(1)
        """Last loss; `loss` is detached: a loss that keeps its graph keeps autograd's accumulators on the stream where
        they were made, and a later capture of the step on another stream fails (cudaErrorStreamCaptureImplicit)."""

    def _batch_of(self, samples: int) -> torch.Tensor:
        return build_batch(self._model_spec, samples, self._device, self._batch_seed)

    def use(self, faults: Faults) -> None:
        """Play these faults from now on, with the batch that they ask for."""
        self.faults = faults
        self.samples = max(1, round(self.planned * faults.data_factor))
        self.batch = self.planned_batch if self.samples == self.planned else self._batch_of(self.samples)
        self._loader = cycle([self.batch])
        self._input = self.batch

    def attach_gradients(self) -> None:
        """Let backward add into the flat buffer."""
        offset = 0
        for parameter in self.model.parameters():
            parameter.grad = self.gradients[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()

    def release_gradients(self) -> None:
        """Let DDP put its own bucket views in place of the flat buffer."""
        for parameter in self.model.parameters():
            parameter.grad = None

    def fetch(self) -> None:
        """Take the next batch: it is ready, unless a fault lets the host wait."""
        self.faults.in_input()
        self._input = next(self._loader)

    def copy(self) -> None:
        """The batch is on the device already; a fault copies something else."""
        self.faults.in_copy()

    def forward(self, model: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Forward pass into zeroed gradients."""
        self.faults.in_forward()
        self.gradients.zero_()
        self._graph = model(self._input)

    def backward(self) -> None:
        """Backward pass; gradients add up in `gradients`."""
        self.faults.in_backward()
        self._graph.backward()
        self.loss = self._graph = self._graph.detach()

    def update(self) -> None:
        """One step of the optimizer."""
        self.optimizer.step()
        self.faults.before_input()

    def local(self) -> None:
        """A whole step without any other rank."""
        self.fetch()
        self.copy()
        self.forward(self.model)
        self.backward()
        self.update()

    def healthy(self, batch: torch.Tensor) -> None:
        """A whole step as `local` would be on a rank without faults."""
        self.gradients.zero_()
        self.model(batch).backward()
        self.optimizer.step()

    def captured(self) -> None:
        """The same with the extra device work of every step, and nothing that a CUDA graph cannot hold."""
        self.faults.captured_forward()
        self.faults.in_backward()
        self.healthy(self.batch)

    def overlapped(self, ddp: DistributedDataParallel, fences: FenceCounter) -> None:
        """A whole step as real training does it: DDP sends each bucket while backward goes on."""
        self.fetch()
        self.copy()
        self.faults.in_forward()
        self.optimizer.zero_gradients()
        self._graph = ddp(self._input)
        with fences.entering("backward with all_reduce"):
            self.backward()
        self.update()

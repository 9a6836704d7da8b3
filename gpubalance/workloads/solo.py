"""Each device alone: the same seeded work, no communication. Shows what a device can do when nobody is waited for,
how much of a step is the host, and whether devices of one model give the same bits.
"""

from __future__ import annotations

import hashlib

import torch

from gpubalance.workloads import probes
from gpubalance.workloads.context import Context
from gpubalance.workloads.extra_work import ExtraWork
from gpubalance.workloads.graph import graph_step
from gpubalance.workloads.inject import Faults
from gpubalance.workloads.timed_loop import collector_off, mean_step, median_step, quiet_step, steps_in
from gpubalance.workloads.training_step import TrainingStep

SECONDS = 0.7
"""Measured time of each kind of step."""

DIGEST_STEPS = 3


def run(context: Context) -> None:
    """The solo phase of one rank, its probes included."""
    extra = ExtraWork(context.device, context.clock)
    faults = Faults.of_rank(context.job.faults, context.rank, extra)
    step = TrainingStep(context, faults, batch_seed=context.job.seed)
    digest = output_digest(step)
    context.log.write("progress", done="digest")
    with collector_off():
        if faults.needs_extra:
            shared = context.device.type == "cpu"
            extra.calibrate(quiet_step(lambda: step.healthy(step.planned_batch), context.clock, 5, 4, shared=shared))
        with faults.playing(context.job, context.rank):
            _steps(context, step, digest)
            if context.device.type == "cuda":
                probes.run(context)


def _steps(context: Context, step: TrainingStep, digest: str) -> None:
    first_ms = median_step(step.local, context.clock, 5, 4)
    eager_ms = mean_step(step.local, context.clock, steps_in(SECONDS, first_ms))
    context.log.write("progress", done="eager")
    graph_ms, missing = graph_step(context, step, eager_ms, SECONDS)
    context.log.write(
        "solo",
        eager_step_ms=eager_ms,
        graph_step_ms=graph_ms,
        graph_missing=missing,
        output_digest=digest,
        samples_per_step=step.samples,
    )


def output_digest(step: TrainingStep) -> str:
    """Digest of losses, of the last output and of the gradients after a few seeded steps on a fresh model.

    Gradients enter as the sum of their 32-bit words in integers: exact, in any order, and one flipped bit changes
    it. Matrix products of one shape on one model of GPU with one library give the same bits each time.
    """
    digest = hashlib.sha256()
    for _ in range(DIGEST_STEPS):
        step.gradients.zero_()
        loss = step.model(step.batch)
        loss.backward()
        step.update()
        digest.update(loss.detach().float().cpu().numpy().tobytes())
        words = step.gradients.view(torch.int32).sum(dtype=torch.int64)
        digest.update(words.cpu().numpy().tobytes())
    with torch.no_grad():
        output = step.model.model(step.batch).float()
    digest.update(output.cpu().numpy().tobytes())
    return digest.hexdigest()

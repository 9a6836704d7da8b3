"""Each device alone: the same seeded work, no communication. Shows what a device can do when nobody is waited for,
how much of a step is the host, and whether devices of one model give the same bits.
"""

from __future__ import annotations

import hashlib

import torch

from gpubalance.workloads import probes
from gpubalance.workloads.context import Context
from gpubalance.workloads.inject import Faults
from gpubalance.workloads.timed_loop import collector_off, mean_step, median_step
from gpubalance.workloads.training_step import TrainingStep

SECONDS = 0.7
"""Measured time of each kind of step."""

DIGEST_STEPS = 3


def run(context: Context) -> None:
    """The solo phase of one rank."""
    faults = Faults.of_rank(context.job, context.rank, context.device, context.clock)
    step = TrainingStep(context, faults, batch_seed=context.job.seed)
    digest = output_digest(step)
    context.log.write("progress", done="digest")

    def whole() -> None:
        step.local(step.model)
        step.update()

    with collector_off():
        first_ms = median_step(whole, context.clock, 5, 4)
        faults.calibrate(first_ms)
        eager_ms = mean_step(whole, context.clock, steps_in(SECONDS, first_ms))
        context.log.write("progress", done="eager")
        graph_ms, missing = graph_step(context, step, eager_ms)
    context.log.write(
        "solo",
        eager_step_ms=eager_ms,
        graph_step_ms=graph_ms,
        graph_missing=missing,
        output_digest=digest,
        samples_per_step=step.samples,
    )
    if context.device.type == "cuda":
        probes.run(context)


def steps_in(seconds: float, step_ms: float) -> int:
    """How many steps fill the time, at least ten."""
    return max(10, round(1000 * seconds / step_ms))


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


def graph_step(context: Context, step: TrainingStep, eager_ms: float) -> tuple[float | None, str | None]:
    """Milliseconds of the step replayed as a CUDA graph: device time, without any host in it. Or why there is none."""
    if context.device.type != "cuda":
        return None, "a CPU has no graphs: host and device are one"
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # libraries choose their kernels and workspaces before the capture, on the same stream
            step.captured()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.captured()
    return mean_step(graph.replay, context.clock, steps_in(SECONDS, eager_ms)), None

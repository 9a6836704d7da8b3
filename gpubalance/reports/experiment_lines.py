"""Lines about what `--what-if` measured."""

from __future__ import annotations

from gpubalance.analysis.experiments import Cost, costs_of
from gpubalance.message_sizes import size_text
from gpubalance.record.experiment import Experiment
from gpubalance.record.run import Run


def experiment_lines(run: Run) -> list[str]:
    """A line a size of each experiment; where a side has no number, why."""
    return [line for experiment in run.experiments for line in _lines(experiment)]


def _lines(experiment: Experiment) -> list[str]:
    lines = [_cost(experiment, cost) for cost in costs_of(experiment)]
    lines += [f"{experiment.variable}={arm.value}: {arm.missing}." for arm in experiment.arms if arm.missing]
    if experiment.found is not None:
        lines.append(f"In this environment {experiment.variable}={experiment.found} was found.")
    return lines


def _cost(experiment: Experiment, cost: Cost) -> str:
    on, off = cost.as_nccl_does_gb_per_s, cost.switched_off_gb_per_s
    rates = f"all_reduce {size_text(cost.size_bytes)}: {on:.1f} GB/s with peer-to-peer, {off:.1f} without"
    if cost.is_same:
        return f"{rates}: {experiment.variable}=1 makes no difference."
    if cost.factor < 1:
        return f"{rates}: here {experiment.variable}=1 gains a factor of {1 / cost.factor:.1f}."
    return f"{rates}: leaving {experiment.variable}=1 costs a factor of {cost.factor:.1f}."

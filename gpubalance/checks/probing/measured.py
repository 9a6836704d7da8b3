"""Judgements that rest on more than one number of a GPU, or on its peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Gpu, finding, groups_of, not_measured

Measure = Callable[[Gpu], float | str]
"""A number, or why there is none."""

_KEY = "measured"


def each_measured(
    gpus: Sequence[Gpu], measure: Measure, what: str, judge: Callable[[Gpu, float], Iterable[Finding]], good: str
) -> list[Finding]:
    """`each_gpu` for a number that has to be worked out: same states, same sentences."""
    found: list[Finding] = []
    known = 0
    asked = [_with(gpu, measure(gpu)) for gpu in gpus]
    for gpu in asked:
        value = gpu.number(_KEY)
        if value is not None:
            known += 1
            found += judge(gpu, value)
    found += not_measured(asked, _KEY, what)
    if known and not any(f.state in (State.FAIL, State.WARN) for f in found):
        found.append(finding(State.PASS, f"{good} on {counted(known, 'GPU')}"))
    return found


def whole(*keys: str) -> Measure:
    """The first of these numbers, when none of them is missing; else why the first missing one is."""

    def measure(gpu: Gpu) -> float | str:
        numbers = [gpu.number(key) for key in keys]
        absent = [key for key, number in zip(keys, numbers, strict=True) if number is None]
        return gpu.reason(absent[0]) if absent else float(numbers[0] or 0)

    return measure


def values_of(gpus: Iterable[Gpu], key: str) -> dict[int, float]:
    """NVML index -> number, where there is one."""
    numbers = {gpu.index: gpu.number(key) for gpu in gpus}
    return {index: number for index, number in numbers.items() if number is not None}


def peers_of(gpus: Iterable[Gpu], values: Mapping[int, float]) -> dict[int, list[float]]:
    """NVML index -> the values of all others of its group, for GPUs that have one themselves."""
    groups = [[gpu.index for gpu in group if gpu.index in values] for group in groups_of(gpus)]
    return {own: [values[other] for other in group if other != own] for group in groups for own in group}


def numbers_of(gpus: Iterable[Gpu]) -> str:
    """GPU 3, or GPU 0, 2, 3."""
    return f"GPU {', '.join(str(gpu.index) for gpu in gpus)}"


def labels_of(gpus: Iterable[Gpu]) -> str:
    """Every identity of each, for `subject`."""
    return "; ".join(gpu.label for gpu in gpus)


def _with(gpu: Gpu, measured: float | str) -> Gpu:
    """The GPU with the number, or with the reason for its absence, among its details."""
    if isinstance(measured, str):
        update = {"values": {_KEY: None}, "missing": {_KEY: measured}, "failed": None}
    else:
        update = {"values": {**gpu.detail.values, _KEY: measured}}
    return replace(gpu, detail=gpu.detail.model_copy(update=update))

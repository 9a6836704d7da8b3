"""S: software that fits together, GPUs that are all there and alike, and nothing left on that slows a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing import counts, kernel_modules, versions
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of, is_absent
from gpubalance.checks.probing.measured import labels_of, numbers_of
from gpubalance.checks.probing.presence import lost_reason
from gpubalance.record.node import Scalar
from gpubalance.record.probe import Probe

ALIKE = {
    "vbios_version": "VBIOS",
    "memory_total_bytes": "memory size",
    "power_limit_w": "power limit",
    "ecc_mode": "ECC mode",
    "mig_mode": "MIG mode",
    "compute_mode": "compute mode",
}

DEBUGGING = {
    "CUDA_LAUNCH_BLOCKING": "every kernel launch waits for the kernel: nothing overlaps",
    "CUDA_INJECTION32_PATH": "a tool's library sits in every CUDA process",
    "CUDA_INJECTION64_PATH": "a tool's library sits in every CUDA process",
    "NVTX_INJECTION64_PATH": "a tool's library takes every NVTX range",
    "NSIGHT_CUDA_DEBUGGER": "CUDA processes run under a debugger",
    "NSYS_PROFILING_SESSION_ID": "a profiler records this session",
    "COMPUTE_PROFILE": "the driver writes a profile of every kernel",
    "CUDA_PROFILE": "the driver writes a profile of every kernel",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION": "a job that fails stops and waits for a debugger instead of ending",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "a job that fails first writes its GPU memory to disk",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "every tensor is allocated anew, and each free waits for the GPU",
    "TORCH_CUDA_SANITIZER": "torch tracks every access to every tensor",
}
"""Variable -> what it costs. After DCGM's list, with torch's own switches added."""


def alike(probe: Probe) -> list[Finding]:
    """S3: one model, and within it one VBIOS, memory size, power limit, ECC, MIG and compute mode (imbue, gcm)."""
    gpus = [gpu for gpu in gpus_of(probe) if lost_reason(gpu) is None]
    if len(gpus) == 1:
        return [finding(State.SKIP, "one GPU: nothing to compare it with")]
    models = Counter(gpu.device.name for gpu in gpus)
    found = [_several_models(models)] if len(models) > 1 else []
    for model in models:
        same = [gpu for gpu in gpus if gpu.device.name == model]
        found += [mix for key, name in ALIKE.items() for mix in _mix(name, [(gpu, _trait(gpu, key)) for gpu in same])]
    unread = _not_compared(gpus)
    if gpus and not found:
        compared = [name for key, name in ALIKE.items() if sum(_trait(gpu, key) is not None for gpu in gpus) > 1]
        text = f"{len(gpus)} GPUs of one model are set up alike"
        found.append(finding(State.PASS, text, evidence=(f"compared: {', '.join(['model', *compared])}",)))
    return [*found, *unread]


def _trait(gpu: Gpu, key: str) -> Scalar:
    return gpu.device.memory_total_bytes if key == "memory_total_bytes" else gpu.value(key)


def _several_models(models: Counter[str]) -> Finding:
    return finding(
        State.WARN,
        f"{len(models)} models of GPU in one node",
        observed=", ".join(f"{count} x {name}" for name, count in models.items()),
        evidence=("other checks compare within each model only",),
        next_step="train on GPUs of one model, or expect all to wait for the slowest",
    )


def _mix(name: str, values: Sequence[tuple[Gpu, Scalar]]) -> Iterator[Finding]:
    """Named is who differs from more than half; without such a majority nobody is."""
    known = Counter(value for _, value in values if value is not None)
    if len(known) < 2:
        return
    usual, times = known.most_common(1)[0]
    odd = [gpu for gpu, value in values if value is not None and value != usual]
    named = times > len(odd)
    yield finding(
        State.WARN,
        f"{name} of {numbers_of(odd)} is not that of its peers" if named else f"{name} differs over GPUs of one model",
        subject=labels_of(odd) if named else None,
        expected=f"{usual} as on {counted(times, 'GPU')}" if named else None,
        evidence=tuple(f"{gpu.name}: {value if value is not None else 'not read'}" for gpu, value in values),
        next_step=f"give all GPUs the same {name}",
    )


def _not_compared(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """What should have a value and was not read, in one finding; that all lack it by design is no news."""
    unread = [
        f"{ALIKE[key]} of {gpu.name}: {gpu.reason(key)}"
        for key in ALIKE
        for gpu in gpus
        if _trait(gpu, key) is None and not is_absent(gpu.reason(key))
    ]
    if unread:
        text = f"{counted(len(unread), 'value')} not read, so not compared over GPUs"
        yield finding(State.UNKNOWN, text, evidence=tuple(unread))


def debugging(probe: Probe) -> list[Finding]:
    """S6: no variable is left on that makes every CUDA job slower or stops it (after DCGM's list)."""
    if probe.node is None:
        return [finding(State.UNKNOWN, "variables not read: the driver did not answer")]
    environment = probe.node.environment
    left_on = [name for name in DEBUGGING if environment.get(name, "").strip() not in ("", "0")]
    found = [
        finding(
            State.WARN,
            f"{name} is set: {DEBUGGING[name]}",
            observed=environment[name],
            next_step=f"unset {name}",
        )
        for name in left_on
    ]
    return found or [finding(State.PASS, "no debugging variable is left on")]


CHECKS = (
    *versions.CHECKS,
    *counts.CHECKS,
    Check("S3", "likeness of GPUs", alike, "any mix; imbue, gcm"),
    *kernel_modules.CHECKS,
    Check("S6", "debugging variables", debugging, "any; DCGM's list"),
)

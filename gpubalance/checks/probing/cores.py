"""A2, A3: whether this process may use the cores near its GPUs, and enough of them, and enough memory."""

from __future__ import annotations

from collections.abc import Iterator

from gpubalance.checks.finding import Finding, State, counted, percent
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of, not_measured
from gpubalance.checks.probing.measured import labels_of, numbers_of
from gpubalance.record.gates import gates_of
from gpubalance.record.node import Node
from gpubalance.record.probe import Probe

MEMORY_PER_GPU_BYTES = 2 * 2**30
"""A rank with torch and NCCL takes about this much of the host."""


def cpus_of(text: str) -> set[int]:
    """CPUs in the kernel's list form: 0-2,5 is 0, 1, 2, 5."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def affinity(probe: Probe) -> list[Finding]:
    """A2: of the cores near each GPU this process may use at least one, and it has a core for every GPU (NCCL's docs,
    stas00). With one NUMA node, as in many virtual machines, all cores are near.
    """
    gpus = gpus_of(probe)
    if probe.node is None or not gpus:
        return []
    if probe.simulated is not None:
        return [finding(State.SKIP, "simulated GPUs are near no core of this host")]
    own = set(probe.node.cpu_cores)
    told = [gpu for gpu in gpus if gpu.value("cpu_affinity")]
    apart = [gpu for gpu in told if not own & cpus_of(str(gpu.value("cpu_affinity")))]
    found = [_apart(apart)] if apart else []
    if len(own) < len(gpus):
        found.append(_few(len(own), len(gpus)))
    if told and not found:
        found.append(finding(State.PASS, f"cores near {counted(len(told), 'GPU')} may be used"))
    return [*found, *_silent(gpus), *not_measured(gpus, "cpu_affinity", "cores near the GPUs")]


def _silent(gpus: list[Gpu]) -> Iterator[Finding]:
    silent = [gpu for gpu in gpus if gpu.value("cpu_affinity") == ""]
    if silent:
        yield finding(State.UNKNOWN, f"NVML names no cores near {numbers_of(silent)}", subject=labels_of(silent))


def _apart(gpus: list[Gpu]) -> Finding:
    return finding(
        State.WARN,
        f"this process may use none of the cores near {numbers_of(gpus)}",
        subject=labels_of(gpus),
        evidence=tuple(f"near {gpu.name}: {gpu.value('cpu_affinity')}" for gpu in gpus),
        next_step="widen the cpuset or the affinity mask: host copies of these GPUs cross between NUMA nodes",
    )


def _few(cores: int, gpus: int) -> Finding:
    return finding(
        State.WARN,
        f"{counted(cores, 'core')} for {gpus} GPUs: ranks would wait for each other's host side",
        observed=str(cores),
        expected=f"at least {gpus}",
        next_step="give the job more cores",
    )


def host_limits(probe: Probe) -> list[Finding]:
    """A3: a whole CPU a GPU and no throttling, memory that can be locked without limit (NCCL's docs), and no more
    OpenMP threads than cores. 5 % of throttled periods is a guess of ours.
    """
    node, gpus = probe.node, len(gpus_of(probe)) if probe.simulated is None else 0
    found = list(_throttled(probe))
    if node is None:
        return [*found, finding(State.UNKNOWN, "cores not counted: the driver did not answer")]
    if gpus:
        found += [*_cpus(node, gpus), *_memory(probe, gpus), *_openmp(node, gpus)]
    if not any(f.state is State.WARN for f in found):
        found.append(_enough(probe, node.cpu_effective, gpus))
    return found


def _enough(probe: Probe, cpus: float, gpus: int) -> Finding:
    periods, throttled = probe.host.cgroup_periods, probe.host.cgroup_periods_throttled
    known = f"throttled in {throttled} of {periods} periods since the control group was made"
    evidence = (known,) if periods and throttled is not None else ()
    return finding(
        State.PASS, f"{cpus:g} CPUs for {counted(gpus, 'GPU')}" if gpus else f"{cpus:g} CPUs", evidence=evidence
    )


def _cpus(node: Node, gpus: int) -> Iterator[Finding]:
    if node.cpu_effective < gpus:
        yield finding(
            State.WARN,
            f"{node.cpu_effective:g} CPUs for {gpus} GPUs: ranks would be limited by the host",
            observed=f"{node.cpu_effective:g}",
            expected=f"at least {gpus}",
            evidence=(f"{node.cpu_count} CPUs in the host, {len(node.cpu_cores)} in the affinity mask",),
            next_step="raise the control group's CPU quota",
        )


def _throttled(probe: Probe) -> Iterator[Finding]:
    """Counted since the control group was made, so that it may be history."""
    periods, throttled = probe.host.cgroup_periods, probe.host.cgroup_periods_throttled
    most = gates_of(probe)["throttled_warn"]
    if periods and throttled is not None and throttled / periods > most:
        yield finding(
            State.WARN,
            f"the CPU quota throttled this group in {percent(throttled / periods)} of its periods",
            observed=f"{throttled} of {periods} since the group was made",
            expected=f"at most {percent(most)}",
            next_step="raise the control group's CPU quota",
        )


def _memory(probe: Probe, gpus: int) -> Iterator[Finding]:
    limit = probe.host.cgroup_memory_limit_bytes
    if limit is not None and limit < gpus * MEMORY_PER_GPU_BYTES:
        yield finding(
            State.INFO,
            f"host memory is limited to {limit / 2**30:.3g} GiB for {counted(gpus, 'GPU')}",
            observed=f"{limit} bytes",
            expected=f"about {gpus * MEMORY_PER_GPU_BYTES // 2**30} GiB: 2 GiB a rank",
        )


def _openmp(node: Node, gpus: int) -> Iterator[Finding]:
    """The variable may be a list, one number for each level of nesting: the first counts."""
    threads = node.environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if threads.isdecimal() and int(threads) * gpus > node.cpu_effective:
        yield finding(
            State.WARN,
            f"OMP_NUM_THREADS={threads} on {counted(gpus, 'rank')} is more than {node.cpu_effective:g} CPUs",
            observed=f"{int(threads) * gpus} threads",
            expected=f"at most {node.cpu_effective:g}",
            next_step=f"set OMP_NUM_THREADS={max(1, int(node.cpu_effective // gpus))}",
        )


CHECKS = (
    Check("A2", "affinity", affinity, "NCCL's docs, ml-engineering: cores near each GPU, and one core a GPU"),
    Check("A3", "host limits", host_limits, "one CPU a GPU, 5 % of periods throttled: ours; NCCL's docs"),
)

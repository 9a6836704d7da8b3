"""U: GPUs that somebody uses already, or that were set up for another use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpubalance.checks.finding import Finding, State, counted, percent
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of, is_absent, not_measured
from gpubalance.checks.probing.measured import each_measured, labels_of, numbers_of
from gpubalance.record.gates import gates_of
from gpubalance.record.node import Process
from gpubalance.record.probe import Holder, Probe
from gpubalance.thresholds import plain

COMPUTE_MODES = {1: "exclusive (one thread)", 2: "prohibited", 3: "exclusive (one process)"}
MODE_PROHIBITED = 2
MODE_VGPU = 2
"""nvml.h: NVML_COMPUTEMODE_PROHIBITED and NVML_GPU_VIRTUALIZATION_MODE_VGPU."""

STOP = "stop what uses it, or wait: a measurement beside it would judge the two together"


def processes(probe: Probe) -> list[Finding]:
    """U1: no process on any GPU, and no memory in use that no process explains (gcm, DCGM). In a container NVML may
    hide processes or number them as the host does, so that an empty list alone passes nothing and no number is a name.
    """
    gpus = gpus_of(probe)
    found: list[Finding] = []
    free = 0
    for gpu in gpus:
        judged = list(_judge_use(probe, gpu))
        found += judged
        free += not judged and own_memory(gpu) is not None
    if free:
        found.append(finding(State.PASS, f"nobody uses {counted(free, 'GPU')}"))
    return [*found, *not_measured(gpus, "memory_used_before_bytes", "memory in use")]


def _judge_use(probe: Probe, gpu: Gpu) -> Iterator[Finding]:
    assert probe.node is not None
    hidden = gates_of(probe)["hidden_memory_warn"]
    here = [process for process in probe.node.processes if process.nvml_index == gpu.index]
    reason = probe.node.missing.get(f"processes on NVML index {gpu.index}")
    if here:
        yield _used_by(gpu, here, in_container=probe.node.container is not None)
    elif (own_memory(gpu) or 0) > hidden:
        yield _used_by_hidden(gpu, own_memory(gpu) or 0, hidden)
    elif reason is not None and not is_absent(reason):
        yield finding(State.UNKNOWN, f"processes of {gpu.name} not read: {reason}", subject=gpu.label)


def own_memory(gpu: Gpu) -> int | None:
    """Bytes in use beside the driver's reserve; some drivers count the reserve as used, which the sum tells."""
    used, free, reserved = (gpu.number(f"memory_{part}_bytes") for part in ("used_before", "free_before", "reserved"))
    total = gpu.device.memory_total_bytes
    if used is None:
        return None
    counted_twice = None not in (free, reserved, total) and used + (free or 0) + (reserved or 0) > (total or 0)
    return int(used - (reserved or 0)) if counted_twice else int(used)


def _used_by(gpu: Gpu, here: Iterable[Process], *, in_container: bool) -> Finding:
    listed = list(here)
    known = {f"{process.name} of {process.owner}" for process in listed if process.name is not None}
    single = len(known) == len(listed) == 1 and not in_container
    hidden = all(process.name is None for process in listed)
    who = known.pop() if single else counted(len(listed), "process") if len(listed) == 1 else f"{len(listed)} processes"
    note = ("numbers of processes may be the host's, and mean another process here",) if in_container else ()
    return finding(
        State.WARN,
        f"{gpu.name} is in use by {who}{' not visible here' if hidden else ''}",
        subject=gpu.label,
        evidence=(*(_process_line(process, named=not in_container) for process in listed), *note),
        next_step=STOP,
    )


def _process_line(process: Process, *, named: bool) -> str:
    size = "memory not said" if process.memory_used_bytes is None else f"{process.memory_used_bytes / 2**20:.0f} MiB"
    if process.name is None or not named:
        return f"a process, {size}"
    return f"pid {process.pid}, {process.name} of {process.owner}, {size}"


def _used_by_hidden(gpu: Gpu, used: int, most: float) -> Finding:
    return finding(
        State.WARN,
        f"{gpu.name} is in use by processes not visible here",
        subject=gpu.label,
        observed=f"{used / 2**20:.0f} MiB in use, no process listed",
        expected=f"at most {plain(most / 2**20)} MiB",
        next_step=f"look from the host: {STOP}",
    )


def idle(probe: Probe) -> list[Finding]:
    """U2: no GPU computes or moves memory for more than 5 % of the time before anything of ours ran (gcm)."""
    most = gates_of(probe)["busy_warn"]

    def judge(gpu: Gpu, busy_percent: float) -> Iterator[Finding]:
        if busy_percent / 100 > most:
            yield _not_idle(gpu, busy_percent, most)

    return each_measured(gpus_of(probe), _busy_percent, "utilization", judge, "nothing runs")


def _busy_percent(gpu: Gpu) -> float | str:
    keys = ("utilization_before_percent", "utilization_percent", "memory_utilization_percent")
    known = [value for key in keys if (value := gpu.number(key)) is not None]
    return max(known) if known else gpu.reason("utilization_before_percent")


def _not_idle(gpu: Gpu, share: float, most: float) -> Finding:
    return finding(
        State.WARN,
        f"{gpu.name} is not idle: busy {share:.0f} % of the time",
        subject=gpu.label,
        observed=f"{share:.0f} %",
        expected=f"at most {percent(most)}",
        next_step=STOP,
    )


def modes(probe: Probe) -> list[Finding]:
    """U3: MIG is off (NCCL and peer-to-peer do not work across slices), any process may compute, and no GPU is a share
    of one. By the meaning that NVML gives these modes.
    """
    gpus = gpus_of(probe)
    found = [*_mig(gpus), *_compute_modes(gpus), *_vgpu(gpus)]
    measured = sum(gpu.value("compute_mode") is not None for gpu in gpus)
    if measured and not any(f.state in (State.FAIL, State.WARN) for f in found):
        found.append(finding(State.PASS, f"{counted(measured, 'GPU')} open to all processes, no MIG"))
    return [*found, *not_measured(gpus, "compute_mode", "compute mode")]


def _mig(gpus: list[Gpu]) -> Iterator[Finding]:
    sliced = [gpu for gpu in gpus if gpu.device.mig_enabled]
    if sliced:
        step = "turn MIG off for training over several GPUs (nvidia-smi -mig 0)"
        text = f"MIG is enabled on {numbers_of(sliced)}: no NCCL across slices"
        yield finding(State.WARN, text, subject=labels_of(sliced), next_step=step)


def _compute_modes(gpus: list[Gpu]) -> Iterator[Finding]:
    for mode, words in COMPUTE_MODES.items():
        there = [gpu for gpu in gpus if gpu.value("compute_mode") == mode]
        if there:
            prohibited = mode == MODE_PROHIBITED
            effect = "no process may compute" if prohibited else "a second process is refused"
            yield finding(
                State.FAIL if prohibited else State.WARN,
                f"compute mode {words} on {numbers_of(there)}: {effect}",
                subject=labels_of(there),
                expected="default",
                next_step="nvidia-smi -c DEFAULT",
            )


def _vgpu(gpus: list[Gpu]) -> Iterator[Finding]:
    shares = [gpu for gpu in gpus if gpu.value("virtualization_mode") == MODE_VGPU]
    if shares:
        text = f"{numbers_of(shares)} is a vGPU: others may share the card behind it"
        yield finding(State.INFO, text, subject=labels_of(shares))


def holders(probe: Probe) -> list[Finding]:
    """U4: no dead or stuck process holds a GPU's device file (gpud), as far as this user may see."""
    why = probe.host.missing.get("holders")
    if why is not None:
        return [finding(State.UNKNOWN, f"holders of GPU files not seen: {why}")]
    found = [_holder(holder) for holder in probe.host.holders]
    return found or [finding(State.PASS, "no dead or stuck process holds a GPU file")]


def _holder(holder: Holder) -> Finding:
    dead = holder.state == "Z"
    name = f" ({holder.name})" if holder.name is not None else ""
    return finding(
        State.WARN,
        f"process {holder.pid}{name} {'is dead' if dead else 'is stuck in the kernel'} and holds a GPU",
        observed=f"state {holder.state}, owner {holder.owner or 'not known'}",
        evidence=tuple(holder.files),
        next_step="end its parent process, which has not collected it"
        if dead
        else "look again; if it stays so it hangs in the driver, and only a reboot is sure",
    )


CHECKS = (
    Check("U1", "processes on GPUs", processes, "gcm, DCGM: any process; 256 MiB that nobody explains"),
    Check("U2", "idleness", idle, "gcm: 5 %"),
    Check("U3", "modes", modes, "NVML: MIG, compute mode, vGPU"),
    Check("U4", "holders of GPU files", holders, "gpud: any"),
)

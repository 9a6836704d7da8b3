"""S2: all GPUs are there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of, setting
from gpubalance.checks.probing.presence import LOST_WORDS, asked_for, gpu_is_due, lost_reason, visible_gpus
from gpubalance.record.probe import PciGpu, Probe

_DEVICE_FILE = re.compile(r"/dev/nvidia\d+")


def counts(probe: Probe) -> list[Finding]:
    """S2: as many GPUs by NVML as by CUDA, by /dev and on the PCI bus, none of them lost, and no fewer than
    `--expect-gpus`. There is no number that every node must have (HV takes 4, gcm and CHS 8).
    """
    gpus = gpus_of(probe)
    lost = [(gpu, reason) for gpu in gpus if (reason := lost_reason(gpu)) is not None]
    found = [*_lost(lost), *_fewer_than_expected(probe, len(gpus) - len(lost)), *_on_the_bus(probe, gpus)]
    if not gpus:
        return found or [_no_gpu(probe)]
    found += [*_by_cuda(probe, gpus), *_by_files(probe, gpus)]
    if not any(f.state in (State.FAIL, State.WARN) for f in found):
        found.append(finding(State.PASS, f"{counted(len(gpus), 'GPU')} found", evidence=_other_counts(probe)))
    return found


def _no_gpu(probe: Probe) -> Finding:
    """Never a pass: whether that is a CPU node or a broken GPU node, there is nothing to judge."""
    node = probe.node
    if node is None:
        return finding(State.UNKNOWN, "GPUs not counted: the driver did not answer")
    evidence = tuple(node.gpu_evidence)
    if not gpu_is_due(probe):
        return finding(State.UNKNOWN, "no GPU on this machine")
    if not evidence:
        return finding(State.UNKNOWN, f"no GPU on this machine, though {asked_for(probe)} asks for one")
    why = "NVML lists none" if node.nvml_error is None else "NVML cannot be used"
    return finding(State.UNKNOWN, f"there is a GPU here, but {why}", evidence=evidence)


def _lost(lost: Iterable[tuple[Gpu, str]]) -> Iterator[Finding]:
    for gpu, reason in lost:
        step = "reset the GPU or reboot the node; replace it if it happens again"
        yield finding(State.FAIL, f"{gpu.name} {LOST_WORDS[reason]}", subject=gpu.label, next_step=step)


def _fewer_than_expected(probe: Probe, usable: int) -> Iterator[Finding]:
    """A driver that does not answer counts nothing; only where surely no GPU is, none is a number."""
    expected, node = setting(probe, "expect_gpus"), probe.node
    countable = node is not None and (node.nvml_error is None or not node.gpu_evidence)
    if expected is not None and countable and usable < expected:
        yield finding(
            State.FAIL,
            f"{counted(usable, 'usable GPU')} found, {expected} expected",
            observed=str(usable),
            expected=str(expected),
            next_step="see `nvidia-smi -L` and `dmesg | grep -i nvrm`: one may have fallen off the bus",
        )


def _on_the_bus(probe: Probe, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """A container may see more of the bus than it was given; vfio-pci means: given to a virtual machine."""
    on_bus = [pci for pci in probe.host.pci_gpus or () if pci.driver != "vfio-pci"]
    if probe.node is None or probe.node.nvml_error is not None or len(on_bus) <= len(gpus):
        return
    listed = {gpu.device.pci_bus_id for gpu in gpus}
    more = len(on_bus) - len(gpus)
    verb = "is" if more == 1 else "are"
    yield finding(
        State.FAIL if probe.node.container is None else State.INFO,
        f"{more} of {counted(len(on_bus), 'GPU')} {verb} on the bus but not in NVML",
        evidence=tuple(_bus_line(pci) for pci in on_bus if pci.bus_id not in listed),
        next_step="see `dmesg | grep -i nvrm` for why the driver left it out" if probe.node.container is None else None,
    )


def _bus_line(pci: PciGpu) -> str:
    return f"{pci.bus_id}, device {pci.device_id}, driver {pci.driver or 'none'}"


def _by_cuda(probe: Probe, gpus: list[Gpu]) -> Iterator[Finding]:
    """0 is S1's: then torch cannot run at all. CUDA counts slices where MIG is on."""
    seen, visible = probe.torch.device_count, len(visible_gpus(probe, gpus))
    if seen and seen < visible and not any(gpu.device.mig_enabled for gpu in gpus):
        text = f"CUDA sees {seen} of {counted(visible, 'GPU')} that NVML lists"
        yield finding(State.FAIL, text, next_step="see `dmesg | grep -i nvrm` for what the other GPU lacks")


def _device_files(probe: Probe) -> list[str]:
    return [name for name in probe.host.device_files if _DEVICE_FILE.fullmatch(name)]


def _by_files(probe: Probe, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    files = len(_device_files(probe))
    if files and files < len(gpus):
        text = f"{files} of {counted(len(gpus), 'GPU')} have a file in /dev: CUDA cannot open the rest"
        yield finding(State.FAIL, text, next_step="run nvidia-modprobe, or give the container all its device files")
    elif files > len(gpus):
        text = f"/dev has files for {counted(files, 'GPU')}, NVML lists {len(gpus)}"
        yield finding(State.WARN, text, next_step="see `dmesg | grep -i nvrm` for a GPU that fell off the bus")


def _other_counts(probe: Probe) -> tuple[str, ...]:
    pci, files, cuda = probe.host.pci_gpus, len(_device_files(probe)), probe.torch.device_count
    return (
        f"CUDA: {cuda if cuda is not None else 'not counted'}",
        f"PCI: {len(pci) if pci is not None else 'not readable'}",
        f"/dev: {files or 'no files'}",
    )


CHECKS = (Check("S2", "count of GPUs", counts, "NVML = CUDA = /dev = PCI, and --expect-gpus", required=True),)

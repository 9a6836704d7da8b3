"""X: what the kernel's log says since boot. Old events count too, so that a node that was sick says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Check, finding, gpus_of
from gpubalance.checks.probing.host import not_read, of_host
from gpubalance.checks.probing.link_lines import bus_findings
from gpubalance.record.probe import KernelEvent, Probe

FATAL = frozenset({48, 62, 64, 74, 79, 95, 119, 120, 140})
APPLICATION = frozenset({13, 31, 43, 45})
"""A program's own mistake raises these as well; a node is never failed for them."""

WORDS = {
    13: "a program's graphics exception",
    31: "a program's bad memory access",
    43: "a program's channel was stopped",
    45: "channels cleaned up after a fault",
    48: "uncorrectable memory error",
    62: "internal controller halted",
    63: "memory row to be remapped",
    64: "memory row could not be remapped",
    74: "NVLink error",
    79: "fell off the bus",
    92: "many corrected memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GSP firmware timed out",
    120: "GSP firmware error",
    140: "unrecovered memory error",
}
"""In our words, after NVIDIA's list of Xid errors."""

STEPS = {
    74: "check NVLink bridges or baseboard, reset the GPUs, and drain the node if it happens again",
    79: "check power, seating and heat, reboot, and replace the GPU if it happens again",
}
_FATAL_STEP = "drain the node, reset the GPU or reboot, and replace the GPU if it happens again"
_OTHER_STEP = "read the lines around it in the kernel log and NVIDIA's list of Xid errors"


@of_host
def xids(probe: Probe) -> list[Finding]:
    """X1: Xids since boot, counted by GPU and number.

    FAIL on 48, 62, 64, 74, 79, 95, 119, 120, 140, as DCGM, Azure's health checks and imbue do; INFO on 13, 31, 43, 45,
    which programs cause too; WARN on all others. A container may see the whole host's log: a GPU that was not given
    to it is never more than a warning there.
    """
    if probe.host.kernel_log is None:
        return [not_read(probe, "kernel_log", "Xids")]
    groups: dict[tuple[str, int], list[KernelEvent]] = defaultdict(list)
    for event in probe.host.kernel_log:
        if event.kind == "xid" and event.xid is not None:
            groups[event.bus_id or "", event.xid].append(event)
    return [_xid(probe, bus_id, xid, events) for (bus_id, xid), events in groups.items()] or [clean(probe, "Xid")]


def _xid(probe: Probe, bus_id: str, xid: int, events: Sequence[KernelEvent]) -> Finding:
    name, label = who(probe, bus_id)
    words = f" ({WORDS[xid]})" if xid in WORDS else ""
    state = State.FAIL if xid in FATAL else State.INFO if xid in APPLICATION else State.WARN
    if state is State.FAIL and label is None and probe.node is not None and probe.node.container:
        state = State.WARN
    step = STEPS.get(xid, _FATAL_STEP) if xid in FATAL else _OTHER_STEP
    return finding(
        state,
        f"{name}: Xid {xid}{words} since boot",
        subject=label or bus_id,
        observed=counted(len(events), "event"),
        expected="none",
        evidence=(events[-1].text,),
        next_step=None if state is State.INFO else step,
    )


def who(probe: Probe, bus_id: str) -> tuple[str, str | None]:
    """How a sentence calls the GPU with this bus id, and its full identity where NVML lists it.

    The driver leaves the function out: 0000:5e:00 is 0000:5e:00.0.
    """
    for gpu in gpus_of(probe):
        address = gpu.device.pci_bus_id or ""
        if bus_id in (address, address.rpartition(".")[0]) and address:
            return gpu.name, gpu.label
    return f"GPU at {bus_id}", None


def clean(probe: Probe, what: str) -> Finding:
    """A pass, which tells when the log does not reach back to the boot."""
    gaps = probe.host.missing.get("kernel_log")
    where = "in the kernel log since boot" if gaps is None else "in what is left of the kernel log"
    return finding(State.PASS, f"no {what} {where}", evidence=(gaps,) if gaps else ())


@of_host
def bus_errors(probe: Probe) -> list[Finding]:
    """X2: NVSwitch errors (SXid), cards that fell off the bus, PCIe errors (AER), links that came up narrow.

    FAIL on what the driver or the kernel calls fatal, as gpud does; corrected PCIe errors are INFO. A link that is
    only slower at boot is INFO too: an idle card lowers its speed.
    """
    if probe.host.kernel_log is None:
        return [not_read(probe, "kernel_log", "bus and NVSwitch errors")]
    found = bus_findings(probe.host.kernel_log, lambda bus_id: who(probe, bus_id))
    return found or [clean(probe, "bus or NVSwitch error")]


CHECKS = (
    Check("X1", "Xids in the kernel log", xids, "DCGM, Azure's health checks, imbue; NVIDIA's list of Xid errors"),
    Check("X2", "bus errors in the kernel log", bus_errors, "gpud: fatal SXid and AER; Linux's own word for links"),
)

"""C4: what the platform puts between two GPUs on the PCI bus."""

from __future__ import annotations

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import finding, gpus_of
from gpubalance.checks.probing.host import not_read, of_host
from gpubalance.record.probe import Probe

_ACS_STEP = "turn ACS off in the BIOS, or with setpci on these bridges at every boot"
_IOMMU_STEP = "turn the IOMMU off in the BIOS, or boot with iommu=pt"


@of_host
def isolation(probe: Probe) -> list[Finding]:
    """C4: WARN on bare metal where bridges redirect peer traffic (ACS) or an IOMMU translates every access.

    From NCCL's documentation and gpud. A virtual machine needs both, so that they are skipped there; where the CPU
    does not say what it is, they are INFO.
    """
    if probe.host.virtual_machine:
        return [finding(State.SKIP, "ACS and IOMMU: a virtual machine needs them")]
    if len(gpus_of(probe)) < 2:
        return [finding(State.SKIP, "ACS and IOMMU: there are no two GPUs to talk to each other")]
    found = [each for each in (_acs(probe), _iommu(probe)) if each is not None]
    return found or [finding(State.PASS, "neither ACS nor an IOMMU stands between the GPUs")]


def _bad(probe: Probe) -> State:
    return State.WARN if probe.host.virtual_machine is False else State.INFO


def _acs(probe: Probe) -> Finding | None:
    bridges = probe.host.acs_bridges
    if bridges is None:
        return not_read(probe, "acs_bridges", "ACS of the bridges above the GPUs")
    if not bridges:
        return None
    return finding(
        _bad(probe),
        f"ACS sends traffic between GPUs through the CPU at {counted(len(bridges), 'bridge')}",
        subject=", ".join(bridges),
        observed="request, completion or upstream redirect on",
        expected="off on bare metal",
        next_step=_ACS_STEP,
    )


def _iommu(probe: Probe) -> Finding | None:
    if probe.host.iommu is None:
        return not_read(probe, "iommu", "state of the IOMMU")
    if probe.host.iommu != "translated":
        return None
    message = "the IOMMU translates every access of the GPUs"
    return finding(_bad(probe), message, observed="translated", expected="off or passthrough", next_step=_IOMMU_STEP)

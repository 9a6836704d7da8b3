"""What the formats for machines ask of a record and its judgement, a run's or a probe's alike."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpubalance.analysis.balance import Balance
from gpubalance.checks.finding import Finding, State
from gpubalance.checks.identity import device_label
from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.verdict import Judgement
from gpubalance.record.node import Device, Node
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.record.timings import DeviceProbe

Record = Run | Probe
AnyJudgement = Judgement | ProbeJudgement


def record_id(record: Record) -> str:
    """What tells one record from all others."""
    return record.probe_id if isinstance(record, Probe) else record.run_id


def node_of(record: Record) -> Node | None:
    """The machine; None when its driver did not answer a probe."""
    return record.node


def devices_of(record: Record) -> list[Device]:
    """Devices that took part in a run, or all that a probe saw."""
    if isinstance(record, Run):
        return list(record.plan.devices)
    return list(record.node.devices) if record.node is not None else []


def devices_named(record: Record, finding: Finding) -> list[Device]:
    """Devices that a finding is about, by the identity it gives; empty when it is about the node."""
    return [device for device in devices_of(record) if _is_named(device, finding.subject or "")]


def _is_named(device: Device, text: str) -> bool:
    """By UUID or bus id; a CPU slot has only its label, which is a beginning of others: CPU core 1, CPU core 12."""
    names = [name for name in (device.uuid, device.pci_bus_id) if name]
    if names:
        return any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) for name in names)
    return any(part.strip().endswith(device_label(device)) for part in text.split(";"))


def speeds_of(record: Record) -> list[tuple[Device, DeviceProbe]]:
    """Each device that was measured alone, with its quick measures."""
    devices = devices_of(record)
    if isinstance(record, Run):
        return [(devices[probe.device], probe) for probe in record.probes]
    if record.load is None:
        return []
    loaded = record.load.devices
    return [(devices[loaded[r.device]], r.speed) for r in record.load.results if r.speed is not None]


def rehearsal(record: Record) -> str | None:
    """Why a record says nothing about the node it was made on, or None: a fault was injected, a driver simulated."""
    if isinstance(record, Probe):
        return f"simulated: {record.simulated}" if record.simulated is not None else None
    return f"injected on purpose: {', '.join(record.injected)}" if record.injected else None


def balance_of(judgement: AnyJudgement) -> Balance | None:
    """The score and its parts, where there is one."""
    first = judgement.facts.first if isinstance(judgement, Judgement) else None
    return first.balance if first is not None else None


def versions_of(record: Record) -> dict[str, str]:
    """Software -> version, of what is known."""
    node = node_of(record)
    known: dict[str, str | None] = {"gpubalance": record.gpubalance_version}
    if node is not None:
        known |= {"driver": node.driver_version, "kernel": node.kernel}
    if isinstance(record, Probe):
        known |= {"torch": record.torch.version, "cuda": record.torch.cuda, "nccl": record.torch.nccl}
    elif record.ranks:
        known |= {name: record.ranks[0].versions.get(name) for name in ("torch", "cuda", "nccl")}
    return {name: version for name, version in known.items() if version}


def count_states(judgement: AnyJudgement) -> dict[State, int]:
    """How many findings are in each of the six states."""
    return {state: sum(1 for finding in judgement.findings if finding.state is state) for state in State}


def finding_lines(finding: Finding) -> Iterator[str]:
    """Everything that a finding says beside its message: who, against what, what speaks for it, what to do."""
    if finding.subject:
        yield finding.subject
    if finding.observed:
        yield f"observed: {finding.observed}"
    if finding.expected:
        yield f"expected: {finding.expected}"
    yield from finding.evidence
    if finding.next_step:
        yield f"next: {finding.next_step}"

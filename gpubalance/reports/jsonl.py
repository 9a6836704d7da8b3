"""JSON lines, for what collects logs: a line for each finding, each device and each rank, and the verdict at the end.

Every line stands alone: it says which record it is from, when that began and what kind of line it is. Strict JSON in
ASCII; what was not measured is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gpubalance.checks.probing.check import Gpu, gpus_of
from gpubalance.checks.verdict import Judgement
from gpubalance.record.node import Device
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.reports.document import plain
from gpubalance.reports.record_parts import (
    AnyJudgement,
    Record,
    balance_of,
    count_states,
    devices_named,
    devices_of,
    node_of,
    record_id,
    rehearsal,
    speeds_of,
    versions_of,
)

READINGS = (
    "utilization_percent", "memory_used_bytes", "temperature_c", "power_w", "sm_clock_mhz", "pcie_generation",
    "pcie_width", "ecc_uncorrected_aggregate", "recovery_action",
)  # fmt: skip
"""What a probe's line tells of a device; the whole is in the record."""

Line = dict[str, Any]


def jsonl_text(record: Record, judgement: AnyJudgement) -> str:
    """All lines, keys in order."""
    every = {
        "schema_version": record.schema_version,
        "run_id": record_id(record),
        "started_at": record.started_at,
        "command": record.kind,
    }
    lines = (*_findings(record, judgement), *_devices(record), *_ranks(record, judgement), _verdict(record, judgement))
    return "".join(json.dumps(plain(every | line), allow_nan=False, sort_keys=True) + "\n" for line in lines)


def _findings(record: Record, judgement: AnyJudgement) -> Iterator[Line]:
    for finding in judgement.findings:
        named = [_identity(device) for device in devices_named(record, finding)]
        yield {"kind": "finding", **plain(finding), "devices": named}


def _identity(device: Device) -> Line:
    return {
        "uuid": device.uuid,
        "pci_bus_id": device.pci_bus_id,
        "nvml_index": device.nvml_index,
        "cuda_ordinal": device.cuda_ordinal,
    }


def _devices(record: Record) -> Iterator[Line]:
    speeds = {id(device): speed for device, speed in speeds_of(record)}
    gpus = {id(gpu.device): gpu for gpu in gpus_of(record)} if isinstance(record, Probe) else {}
    for device in devices_of(record):
        speed, gpu = speeds.get(id(device)), gpus.get(id(device))
        yield {
            "kind": "device",
            **_identity(device),
            "name": device.name,
            "memory_total_bytes": device.memory_total_bytes,
            "speed": speed.model_dump(exclude={"rank", "device"}) if speed is not None else None,
            **(_readings(gpu) if gpu is not None else {}),
        }


def _readings(gpu: Gpu) -> Line:
    values = {key: gpu.value(key) for key in READINGS}
    missing = {key: gpu.reason(key) for key, value in values.items() if value is None}
    links = gpu.detail.links
    known = bool(links) and all(link.active is not None for link in links)
    up = sum(1 for link in links if link.active) if known else None
    return {**values, "missing": missing, "nvlinks": len(links) or None, "nvlinks_up": up}


def _ranks(record: Record, judgement: AnyJudgement) -> Iterator[Line]:
    first = judgement.facts.first if isinstance(judgement, Judgement) else None
    if first is None or not isinstance(record, Run) or not isinstance(judgement, Judgement):
        return
    useful = dict(enumerate(judgement.facts.utilization.useful))
    memory = {peak.rank: peak for peak in record.memory}
    causes = {each.rank: each.cause for each in first.attributions}
    for rank, device in enumerate(first.device_of_rank):
        yield {
            "kind": "rank",
            "rank": rank,
            **_identity(record.plan.devices[device]),
            "compute_ms": first.compute_ms[rank],
            "wait_ms": first.wait_ms[rank],
            "blame_ms": first.balance.blame_ms[rank],
            "ratio_to_peers": first.stragglers.ranks[rank].ratio,
            "straggler": first.stragglers.ranks[rank].state,
            "cause": causes.get(rank),
            "useful": useful.get(rank),
            "peak_reserved_bytes": memory[rank].peak_reserved_bytes if rank in memory else None,
        }


def _verdict(record: Record, judgement: AnyJudgement) -> Line:
    balance, node = balance_of(judgement), node_of(record)
    return {
        "kind": "verdict",
        "verdict": judgement.verdict,
        "sentence": judgement.sentence,
        "rules_version": judgement.rules_version,
        "balance": balance.score if balance is not None else None,
        "balance_low": balance.low if balance is not None else None,
        "balance_high": balance.high if balance is not None else None,
        "findings": {state.value: count for state, count in count_states(judgement).items()},
        "hostname": node.hostname if node is not None else None,
        "duration_s": record.duration_s,
        "interrupted_by": record.interrupted_by if isinstance(record, Run) else None,
        "rehearsal": rehearsal(record),
        "versions": versions_of(record),
    }

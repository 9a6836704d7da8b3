"""Looks at nodes in one line: two healthy H200s, and whatever a test replaces."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.probing.check import Check
from gpubalance.record.node import Device
from gpubalance.record.probe import DeviceDetail, HostDetail, Load, NvLink, Peer, Probe, TorchDetail
from gpubalance.record.run import Phase, Setting
from gpubalance.record.samples import CounterReading, DeviceSamples, Samples
from gpubalance.testing.runs import make_gpu, make_node

Values = Mapping[str, Any]

NOT_SUPPORTED = ("NOT_SUPPORTED",)
NO_PERMISSION = ("NO_PERMISSION",)
"""In place of a value: it is null, and this is why. Any text in a tuple of one does."""

FAMILIES = {
    "A": ("topology",),
    "C": ("container", "environment"),
    "M": ("memory",),
    "N": ("nvlink",),
    "P": ("pcie",),
    "S": ("software",),
    "T": ("thermal",),
    "U": ("usage",),
    "X": ("kernel_log",),
}
"""First letter of a check's id -> the files that hold its family."""

READINGS: dict[str, Any] = {"power_default_limit_w": 700.0, "mig_mode": 0, "ecc_mode": 1, "persistence_mode": 1,
                            "nvlink_speed_mb_per_s": 26562}  # fmt: skip
"""What `make_gpu` does not read at rest."""

HEALTHY: dict[str, Any] = {
    "utilization_percent": 0,
    "memory_utilization_percent": 0,
    "memory_used_bytes": 0,
    "power_w": 79.4,
    "sm_clock_mhz": 345,
    "memory_clock_mhz": 3201,
    "temperature_c": 35,
    "event_reasons": 0x1,
    "pcie_generation": 5,
    "pcie_width": 16,
    "power_violation_ns": 0,
    "thermal_violation_ns": 0,
    "energy_mj": 2570179,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "pcie_replays": 1,
    "nvlink_replays": 0,
    "nvlink_recoveries": 0,
    "nvlink_crc_errors": 0,
    "rows_remapped_uncorrectable": 0,
    "temperature_slowdown_c": NOT_SUPPORTED,
    "memory_temperature_c": 41,
    "power_set_limit_w": 700.0,
    "application_clock_mhz": 1980,
    "pcie_generation_gpu_max": 5,
    "ecc_corrected_aggregate": 0,
    "ecc_uncorrected_aggregate": 0,
    "rows_remapped_correctable": 0,
    "rows_remap_pending": 0,
    "rows_remap_failed": 0,
    "retired_pages_single_bit": NOT_SUPPORTED,
    "retired_pages_double_bit": NOT_SUPPORTED,
    "retired_pages_pending": NOT_SUPPORTED,
    "recovery_action": 0,
    "nvlink_recovery_failed": NOT_SUPPORTED,
    "numa_node": NOT_SUPPORTED,
    "virtualization_mode": 1,
    "brand": 14,
    "architecture": 9,
    "vbios_version": "96.00.A5.00.1A",
    "temperature_margin_c": 46,
    "inforom_valid": 1,
    "channel_repair_pending": 0,
    "tpc_repair_pending": 0,
    "row_banks_max": 3072,
    "row_banks_high": 0,
    "row_banks_partial": 0,
    "row_banks_low": 0,
    "row_banks_none": 0,
    "sram_uncorrected_aggregate": 0,
    "sram_corrected_aggregate": 0,
    "sram_threshold_exceeded": 0,
    "fabric_state": NOT_SUPPORTED,
    "fabric_status": NOT_SUPPORTED,
    "fabric_health_mask": NOT_SUPPORTED,
    "cpu_affinity": "0-7",
}
"""What an H200 says of itself at rest; read off a node with two of them as far as that node was asked."""

HOST: dict[str, Any] = {
    "uptime_s": 86400.0,
    "virtual_machine": False,
    "kernel_modules": ["nvidia", "nvidia_uvm"],
    "driver_file_version": "580.1",
    "open_files_limit": 1048576,
    "shm_total_bytes": 16 * 2**30,
    "shm_free_bytes": 16 * 2**30,
    "iommu": "off",
    "acs_bridges": [],
    "kernel_log": [],
    "hostname_resolves": True,
    "sys_nice": True,
    "stack_limit_bytes": 8 * 2**20,
}


def make_probe(
    gpus: Sequence[Values] | None = None,
    readings: Sequence[Values] | None = None,
    devices: Sequence[Values] | None = None,
    *,
    count: int | None = None,
    host: Values | None = None,
    torch: Values | None = None,
    node: Values | None = None,
    settings: Values | None = None,
    load: Load | None = None,
    **values: Any,
) -> Probe:
    """One look at a healthy node with H200s: as many as the longest of the lists, else `count`, else two.

    `gpus` replaces what each GPU tells of its health (DeviceDetail.values; the keys `links`, `peers` and `failed` are
    fields of DeviceDetail), `readings` what it reads at rest, `devices` fields of Device; `host`, `torch` and `node`
    replace fields of those records, `values` fields of Probe. A value of ("REASON",) is null for that reason.
    """
    given = [part for part in (gpus, readings, devices) if part is not None]
    size = max(map(len, given)) if count is None and given else 2 if count is None else count
    device_records = [_device(i, _at(readings, i), _at(devices, i)) for i in range(size)]
    base: dict[str, Any] = {
        "gpubalance_version": "0.1.0",
        "probe_id": "look",
        "started_at": "2030-01-01T00:00:00Z",
        "duration_s": 1.0,
        "settings": {name: Setting(value=value, origin="flag") for name, value in (settings or {}).items()},
        "node": make_node(device_records, **{"cuda_driver_version": "13.0", **(node or {})}),
        "details": [_detail(index, size, _at(gpus, index)) for index in range(size)],
        "host": HostDetail(**{**HOST, "device_files": _device_files(size), **(host or {})}),
        "torch": TorchDetail(**{**_torch(device_records), **(torch or {})}),
        "load": load,
    }
    return Probe(**{**base, **values})


def make_load(
    columns: Sequence[Values] = (),
    counters: Sequence[Values] = (),
    *,
    devices: Sequence[int] | None = None,
    seconds: float = 60.0,
    **values: Any,
) -> Load:
    """A load of these GPUs (NVML indices), sampled evenly while "load speed" lasts.

    `columns` gives each GPU's samples by key; `counters` its counters as (at "load begin", at "load end").
    """
    ran = list(devices) if devices is not None else list(range(max(len(columns), len(counters))))
    ticks = max((len(column) for each in columns for column in each.values()), default=0)
    readings = [
        CounterReading(t_s=place * seconds, edge=edge, device=device, values={k: v[place] for k, v in each.items()})
        for device, each in enumerate(counters)
        for place, edge in enumerate(("load begin", "load end"))
    ]
    samples = Samples(
        t_s=[seconds * (tick + 0.5) / ticks for tick in range(ticks)],
        devices=[DeviceSamples(device=i, columns={k: list(v) for k, v in e.items()}) for i, e in enumerate(columns)],
        counters=readings,
    )
    base = {"phases": [Phase(name="load speed", attempt=0, begin_s=0.0, end_s=seconds)], "samples": samples}
    return Load(devices=ran, **{**base, **values})


def only(check_id: str, probe: Probe) -> list[Finding]:
    """What the check of this id found; at least one finding, always, and all of it under that id."""
    (check,) = [check for check in _checks_beside(check_id) if check.id == check_id]
    found = check.findings(probe)
    assert found
    assert {finding.id for finding in found} == {check_id}
    return found


def states(findings: Sequence[Finding]) -> list[str]:
    """pass, warn, ... in the order found."""
    return [finding.state.value for finding in findings]


def worst(findings: Sequence[Finding]) -> Finding:
    """The worst of them; it must say what to do next if it is bad news."""
    order = [State.FAIL, State.UNKNOWN, State.WARN, State.INFO, State.PASS, State.SKIP]
    return min(findings, key=lambda finding: order.index(finding.state))


def _checks_beside(check_id: str) -> list[Check]:
    """Checks of the files that hold this family."""
    names = [f"gpubalance.checks.probing.{name}" for name in FAMILIES[check_id[0]]]
    return [check for name in names for check in importlib.import_module(name).CHECKS]


def _at(given: Sequence[Values] | None, index: int) -> Values:
    return given[index] if given is not None and index < len(given) else {}


def _split(values: Values) -> tuple[dict[str, Any], dict[str, str]]:
    """Values with nulls, and the reasons for these."""
    missing = {key: value[0] for key, value in values.items() if isinstance(value, tuple)}
    return {key: None if key in missing else value for key, value in values.items()}, missing


def _device(index: int, readings: Values, fields: Values) -> Device:
    values, missing = _split({**READINGS, **readings})
    return make_gpu(index, **values).model_copy(update={"missing": missing, **fields})


def _detail(index: int, size: int, given: Values) -> DeviceDetail:
    if given.get("failed") is not None:
        return DeviceDetail(nvml_index=index, failed=given["failed"])
    values, missing = _split({**HEALTHY, **{k: v for k, v in given.items() if k not in ("links", "peers", "failed")}})
    links = given.get("links", [NvLink(link=link, active=True, version=4) for link in range(18)])
    peers = given.get("peers", [_peer(other) for other in range(size) if other != index])
    return DeviceDetail(nvml_index=index, values=values, missing=missing, links=links, peers=peers)


def _peer(other: int) -> Peer:
    return Peer(nvml_index=other, topology="NODE", p2p=dict.fromkeys(("read", "write", "nvlink", "atomics"), "OK"))


def _device_files(size: int) -> dict[str, str]:
    names = ["/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{index}" for index in range(size))]
    return dict.fromkeys(names, "ok")


def _torch(devices: Sequence[Device]) -> dict[str, Any]:
    return {
        "version": "2.11.0+cu130",
        "cuda": "13.0",
        "cudnn": "9.15",
        "nccl": "2.28.9",
        "arch_list": ["sm_80", "sm_90", "sm_100"],
        "cuda_available": bool(devices),
        "device_count": len(devices),
        "seconds": 3.0,
    }

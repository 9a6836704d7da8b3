"""What the types of a probe's record cannot say: that its parts fit together, as `consistency` says it of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpubalance.record.gates import gates_problem
from gpubalance.record.probe import Load, Probe

CPU_LIST = re.compile(r"(\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*)?")
"""CPUs as the kernel writes them: 0-15,32-47."""

VERSION = re.compile(r"\d{1,9}(\.\d{1,9})*")


def probe_contradiction(probe: Probe) -> str | None:
    """The first place where a probe contradicts itself, in words; None when everything fits."""
    checks = (_devices, _load, _numbers, _texts, _thresholds)
    return next((text for check in checks for text in check(probe)), None)


def _devices(probe: Probe) -> Iterator[str]:
    count = _count(probe)
    visibility = probe.node.visibility if probe.node is not None else None
    for index in visibility.visible if visibility is not None else ():
        if not 0 <= index < count:
            yield f"node.visibility names GPU {index}, the node has {count}"
    for index in probe.load.devices if probe.load is not None else ():
        if not 0 <= index < count:
            yield f"load.devices names GPU {index}, the node has {count}"


def _count(probe: Probe) -> int:
    return len(probe.node.devices) if probe.node is not None else 0


def _load(probe: Probe) -> Iterator[str]:
    load = probe.load
    if load is None:
        return
    count = len(load.devices)
    named = {
        "load.results": [result.device for result in load.results],
        "load.samples.devices": [samples.device for samples in load.samples.devices],
        "load.samples.counters": [reading.device for reading in load.samples.counters],
    }
    for place, devices in named.items():
        yield from (f"{place} names device {i}, the load has {count}" for i in devices if not 0 <= i < count)
    yield from _columns(load)


def _columns(load: Load) -> Iterator[str]:
    ticks = len(load.samples.t_s)
    for samples in load.samples.devices:
        for name, values in samples.columns.items():
            if len(values) != ticks:
                where = f"column {name} of device {samples.device}"
                yield f"load.samples: {where} has {len(values)} values for {ticks} ticks"


def _numbers(probe: Probe) -> Iterator[str]:
    """Speeds that others are divided by."""
    names = ("gemm_tflops", "memory_copy_gb_per_s", "host_to_device_gb_per_s", "device_to_host_gb_per_s")
    for result in probe.load.results if probe.load is not None else ():
        for name in names if result.speed is not None else ():
            value = getattr(result.speed, name)
            if not value > 0:
                yield f"load.results: {name} is {value:g}, it must be above 0"


def _texts(probe: Probe) -> Iterator[str]:
    """Lists of CPUs and versions that are read as numbers."""
    lists = {
        f"details of GPU {each.nvml_index}: cpu_affinity": each.values.get("cpu_affinity") for each in probe.details
    }
    lists |= {f"NUMA node {each.node}: cpus": each.cpus for each in probe.host.numa_nodes}
    versions = {
        "node.cuda_driver_version": probe.node.cuda_driver_version if probe.node is not None else None,
        "torch.cuda": probe.torch.cuda,
    }
    for expected, what, texts in ((CPU_LIST, "list of CPUs", lists), (VERSION, "version", versions)):
        for place, text in texts.items():
            if text is not None and not expected.fullmatch(str(text)):
                yield f"{place} is no {what}"


def _thresholds(probe: Probe) -> Iterator[str]:
    problem = gates_problem(probe)
    if problem is not None:
        yield problem

"""Each device's quick measures against its peers of the same kind, and against its own derived limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpubalance.analysis.facts import Facts
from gpubalance.analysis.stragglers import median_of_others
from gpubalance.checks.finding import Finding, State, percent
from gpubalance.checks.identity import labels_of, name_of
from gpubalance.record.gates import gates_of
from gpubalance.record.limits import gemm_limit_tflops, host_link_limit_gb_per_s, memory_limit_gb_per_s
from gpubalance.record.node import Device
from gpubalance.record.run import Run
from gpubalance.record.timings import DeviceProbe

LIMIT = "limit"
"""Name of the gates on the share of the derived limit. Two healthy H200s reach 0.87 (matrix product, at the clock
seen), 0.88 (memory) and 0.87 (host link)."""


@dataclass(frozen=True)
class Measure:
    """One quick measure: how it is called, its limit, and the gates that hold it against its peers."""

    key: str
    name: str
    unit: str
    limit: Callable[[Device, float | None], float | None]
    """From the device and the SM clock that was seen."""
    peer: str
    """Name of the gates on how far below its peers it may be."""

    def value(self, probe: DeviceProbe) -> float:
        """What was measured."""
        return float(getattr(probe, self.key))


def _memory_limit(device: Device, _clock_mhz: float | None) -> float | None:
    return memory_limit_gb_per_s(device)


def _link_limit(device: Device, _clock_mhz: float | None) -> float | None:
    return host_link_limit_gb_per_s(device)


MEASURES = (
    Measure("gemm_tflops", "matrix product", "TFLOP/s", gemm_limit_tflops, "gemm_peer"),
    Measure("memory_copy_gb_per_s", "memory copy", "GB/s", _memory_limit, "memory_copy_peer"),
    Measure("host_to_device_gb_per_s", "host to device copy", "GB/s", _link_limit, "host_copy_peer"),
    Measure("device_to_host_gb_per_s", "device to host copy", "GB/s", _link_limit, "host_copy_peer"),
)


def check_probes(run: Run, facts: Facts) -> list[Finding]:
    """All measures of all devices; one pass line when nothing is wrong."""
    if not run.probes:
        return []
    groups = _groups(run)
    found = [finding for measure in MEASURES for finding in _measure(run, facts, measure, groups)]
    if found:
        return found
    blind = [group[0].device for group in groups if len(group) == 1 and not _limits(run, facts, group[0].device)]
    if blind:
        return [_no_yardstick(run, device) for device in blind]
    known = _limits(run, facts, run.probes[0].device)
    held = f"limits of {', '.join(known)}" if known else "peers"
    return [
        Finding(
            "device_speed",
            State.PASS,
            f"each device alone is as fast as its {held} let expect",
            required=True,
        )
    ]


def _limit(run: Run, facts: Facts, measure: Measure, device: int) -> float | None:
    clocks = facts.gemm_clock_mhz
    return measure.limit(run.plan.devices[device], clocks[device] if device < len(clocks) else None)


def _limits(run: Run, facts: Facts, device: int) -> list[str]:
    """Names of the measures whose limit is known."""
    return [measure.name for measure in MEASURES if _limit(run, facts, measure, device) is not None]


def _no_yardstick(run: Run, device: int) -> Finding:
    return Finding(
        "device_speed",
        State.UNKNOWN,
        f"no limit can be derived for {name_of(run, device)}, and it has no peers",
        subject=labels_of(run, device),
        next_step="compare the numbers in the record with those of a device of this model that is known to be good",
    )


def _measure(run: Run, facts: Facts, measure: Measure, groups: Sequence[Sequence[DeviceProbe]]) -> Iterator[Finding]:
    peer_gates, limit_gates = gates_of(run).pair(measure.peer), gates_of(run).pair(LIMIT)
    for group in groups:
        for probe, peer in zip(group, _peers(measure, group), strict=True):
            if peer is not None:
                yield from _against_peers(run, measure, probe, peer, len(group) - 1, peer_gates)
            yield from _against_limit(run, facts, measure, probe, limit_gates)


def _peers(measure: Measure, group: Sequence[DeviceProbe]) -> list[float] | list[None]:
    """What each device is held against: the median of the others; of two others the slower, so that one fast device
    makes no slow ones.
    """
    values = [measure.value(probe) for probe in group]
    if len(values) == 1:
        return [None]
    if len(values) == 3:
        return [min(values[:place] + values[place + 1 :]) for place in range(3)]
    return [float(peer) for peer in median_of_others(np.array(values)[:, None])[:, 0]]


def _groups(run: Run) -> list[list[DeviceProbe]]:
    """Devices of one model, MIG state and power limit: only those can be compared."""
    groups: dict[tuple[object, ...], list[DeviceProbe]] = {}
    for probe in run.probes:
        device = run.plan.devices[probe.device]
        key = (device.name, device.mig_enabled, device.readings.get("power_limit_w"))
        groups.setdefault(key, []).append(probe)
    return list(groups.values())


def _against_peers(
    run: Run, measure: Measure, probe: DeviceProbe, peer: float, others: int, gates: tuple[float, float]
) -> Iterator[Finding]:
    """With two devices the spread is said, and no culprit is named."""
    value = measure.value(probe)
    behind = 1 - value / peer
    warn, fail = gates
    if behind <= warn:
        return
    state = State.FAIL if behind > fail and others > 1 else State.WARN
    yield Finding(
        "device_speed",
        state,
        f"{measure.name} of {name_of(run, probe.device)} is {percent(behind)} below its peers",
        subject=labels_of(run, probe.device),
        observed=f"{value:.1f} {measure.unit}",
        expected=below_peers(measure, peer, warn, fail),
        evidence=("with two devices, which of them is the abnormal one needs a baseline",) if others == 1 else (),
        next_step="look at clocks, power and temperature of that device, and at what else uses it",
    )


def below_peers(measure: Measure, peer: float, warn: float, fail: float) -> str:
    """What a device is held against, for `expected`."""
    return f"{peer:.1f} {measure.unit} as its peers, at most {percent(warn)} below (fails above {percent(fail)})"


def share_of_limit(measure: Measure, limit: float, warn: float, fail: float) -> str:
    """What a derived limit lets expect, for `expected`."""
    return f"at least {percent(warn)} of {limit:.0f} {measure.unit} (fails below {percent(fail)})"


def _against_limit(
    run: Run, facts: Facts, measure: Measure, probe: DeviceProbe, gates: tuple[float, float]
) -> Iterator[Finding]:
    limit = _limit(run, facts, measure, probe.device)
    if limit is None:
        return
    share = measure.value(probe) / limit
    warn, fail = gates
    if share >= warn:
        return
    yield Finding(
        "device_speed",
        State.FAIL if share < fail else State.WARN,
        f"{measure.name} of {name_of(run, probe.device)} reaches {percent(share)} of its derived limit",
        subject=labels_of(run, probe.device),
        observed=f"{measure.value(probe):.1f} {measure.unit}",
        expected=share_of_limit(measure, limit, warn, fail),
        next_step="look at clocks, link width and generation under load, and at power limits",
    )

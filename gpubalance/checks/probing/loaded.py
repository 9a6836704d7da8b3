"""What the sensor saw of one GPU while `--load` kept it busy, for rules that cannot judge a GPU at rest."""

from __future__ import annotations

from gpubalance.record.probe import DeviceLoad, Load, Probe
from gpubalance.record.samples import CounterReading, DeviceSamples

LOAD_SPEED = "load speed"
LOAD_BEGIN, LOAD_END = "load begin", "load end"
MIN_SAMPLES = 3
"""Fewer may all be the edge of a load, which says nothing bad about a GPU."""


def was_loaded(probe: Probe, nvml_index: int) -> bool:
    """True when the load ran on this GPU; one that was left alone is judged as if there had been no load."""
    result = _result(probe, nvml_index)
    return _place(probe, nvml_index) is not None and (result is None or result.skipped is None)


def loaded_samples(probe: Probe, nvml_index: int, key: str, phase: str = LOAD_SPEED) -> list[float]:
    """Samples of one reading inside the phase, nulls left out; empty where nothing was sampled."""
    return [row[0] for row in loaded_rows(probe, nvml_index, (key,), phase)]


def loaded_rows(
    probe: Probe, nvml_index: int, keys: tuple[str, ...], phase: str = LOAD_SPEED
) -> list[tuple[float, ...]]:
    """The same for several readings of one tick; ticks at which one of them is null are left out."""
    samples = _samples(probe, nvml_index)
    if probe.load is None or samples is None:
        return []
    windows = _windows(probe.load, samples.device, phase)
    columns = [samples.columns.get(key, ()) for key in keys]
    ticks = zip(probe.load.samples.t_s, *columns, strict=False)
    rows = [values for t_s, *values in ticks if any(begin <= t_s <= end for begin, end in windows)]
    return [tuple(value for value in row if value is not None) for row in rows if None not in row]


def why_no_samples(probe: Probe, nvml_index: int, key: str) -> str:
    """Why `loaded_samples` is empty, as far as that is known."""
    result, samples = _result(probe, nvml_index), _samples(probe, nvml_index)
    reason = samples.missing.get(key) if samples is not None else None
    return reason or (result.error if result is not None else None) or "not sampled under load"


def counter_change(probe: Probe, nvml_index: int, key: str) -> int | None:
    """How much a counter grew from the beginning of the load to its end.

    None when it was not read at both ends, or is smaller at the end: something has reset it meanwhile.
    """
    before, after = (_value(_edge(probe, nvml_index, edge), key) for edge in (LOAD_BEGIN, LOAD_END))
    if before is None or after is None or after < before:
        return None
    return int(after - before)


def why_no_change(probe: Probe, nvml_index: int, key: str) -> str:
    """Why `counter_change` is None, as far as that is known."""
    edges = [_edge(probe, nvml_index, edge) for edge in (LOAD_BEGIN, LOAD_END)]
    reasons = [edge.missing[key] for edge in edges if edge is not None and key in edge.missing]
    return reasons[0] if reasons else "not read at both ends, or reset"


def seconds_between_edges(probe: Probe, nvml_index: int) -> float | None:
    """How long the counters had time to grow; None when they were not read at both ends of the load."""
    begin, end = _edge(probe, nvml_index, LOAD_BEGIN), _edge(probe, nvml_index, LOAD_END)
    return None if begin is None or end is None else end.t_s - begin.t_s


def _place(probe: Probe, nvml_index: int) -> int | None:
    """Samples and results count the GPUs of the load, not those of the node."""
    if probe.load is None or nvml_index not in probe.load.devices:
        return None
    return probe.load.devices.index(nvml_index)


def _result(probe: Probe, nvml_index: int) -> DeviceLoad | None:
    place = _place(probe, nvml_index)
    results = probe.load.results if probe.load is not None else []
    return next((result for result in results if result.device == place), None)


def _samples(probe: Probe, nvml_index: int) -> DeviceSamples | None:
    place = _place(probe, nvml_index)
    devices = probe.load.samples.devices if probe.load is not None else []
    return next((samples for samples in devices if samples.device == place), None)


def _windows(load: Load, device: int, phase: str) -> list[tuple[float, float]]:
    """The GPU's own stretch, else those of the whole load: a GPU rests while others still come up."""
    own = [result.windows[phase] for result in load.results if result.device == device and phase in result.windows]
    return own or [(each.begin_s, each.end_s) for each in load.phases if each.name == phase and each.end_s is not None]


def _edge(probe: Probe, nvml_index: int, edge: str) -> CounterReading | None:
    place = _place(probe, nvml_index)
    counters = probe.load.samples.counters if probe.load is not None else []
    return next((reading for reading in counters if reading.edge == edge and reading.device == place), None)


def _value(reading: CounterReading | None, key: str) -> float | None:
    return None if reading is None else reading.values.get(key)

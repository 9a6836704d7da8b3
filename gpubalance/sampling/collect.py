"""From the sensor's log lines to one table of samples. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from gpubalance.record.rank_log import Event
from gpubalance.record.samples import (
    Column,
    CounterReading,
    DeviceSamples,
    ProcessMemory,
    QuotaReading,
    Samples,
    SensorHealth,
    XidEvent,
)


def collect_samples(
    events: Sequence[Event],
    *,
    start_s: float,
    interval_s: float,
    rank_of_pid: Mapping[int, int],
    hung_in: str | None = None,
    died_with: str | None = None,
    last_words: str | None = None,
) -> Samples:
    """All samples with times relative to `start_s`. `rank_of_pid` says which processes are ranks of this run."""
    ticks = [event for event in events if event["event"] == "sample"]
    columns = next((event["columns"] for event in events if event["event"] == "columns"), ())
    return Samples(
        t_s=[round(tick["t_s"] - start_s, 4) for tick in ticks],
        devices=_devices(events, ticks, columns),
        counters=[
            CounterReading(
                t_s=round(event["t_s"] - start_s, 4),
                edge=event["edge"],
                device=event["device"],
                values=event["values"],
                missing=event["missing"],
            )
            for event in events
            if event["event"] == "counters"
        ]
        + _failed_counters(events, start_s),
        xids=[
            XidEvent(t_s=round(event["t_s"] - start_s, 4), nvml_index=event["nvml_index"], xid=event["xid"])
            for event in events
            if event["event"] == "xid"
        ],
        processes=_processes(events, rank_of_pid, start_s),
        quota=[
            QuotaReading(t_s=round(event["t_s"] - start_s, 4), periods=event["periods"], throttled=event["throttled"])
            for event in events
            if event["event"] == "quota"
        ],
        health=_health(events, ticks, interval_s).model_copy(
            update={"hung_in": hung_in, "died_with": died_with, "last_words": last_words}
        ),
    )


def _failed_counters(events: Sequence[Event], start_s: float) -> list[CounterReading]:
    """A look that failed is null for every device, with the reason."""
    devices = sorted({event["device"] for event in events if event["event"] == "counters"}) or [0]
    return [
        CounterReading(
            t_s=round(event["t_s"] - start_s, 4),
            edge=event["edge"],
            device=device,
            values={},
            missing={"counters": event["reason"]},
        )
        for event in events
        if event["event"] == "counters_failed"
        for device in devices
    ]


def _devices(events: Sequence[Event], ticks: Sequence[Event], columns: Sequence[str]) -> list[DeviceSamples]:
    reasons: dict[int, dict[str, str]] = defaultdict(dict)
    for event in events:
        if event["event"] == "missing":
            reasons[event["device"]].update(event["reasons"])
    count = len(ticks[0]["rows"]) if ticks else 0
    return [
        DeviceSamples(device=device, columns=_columns(ticks, columns, device), missing=reasons[device])
        for device in range(count)
    ]


def _columns(ticks: Sequence[Event], columns: Sequence[str], device: int) -> dict[str, Column]:
    """Columns that never held a value are left out: their reason stands in `missing`."""
    table = {key: [tick["rows"][device][place] for tick in ticks] for place, key in enumerate(columns)}
    return {key: values for key, values in table.items() if any(value is not None for value in values)}


def _processes(events: Sequence[Event], rank_of_pid: Mapping[int, int], start_s: float) -> list[ProcessMemory]:
    most: dict[tuple[int, int], int | None] = {}
    seen: dict[tuple[int, int], list[float]] = defaultdict(list)
    for event in events:
        for process in event["processes"] if event["event"] == "processes" else ():
            key = (process["device"], process["pid"])
            used = process["memory_used_bytes"]
            known = most.get(key)
            most[key] = used if known is None else max(known, used or 0)
            seen[key].append(round(event["t_s"] - start_s, 4))
    return [
        ProcessMemory(
            device=device,
            pid=pid,
            rank=rank_of_pid.get(pid),
            memory_used_bytes=used,
            first_seen_s=min(seen[device, pid]),
            last_seen_s=max(seen[device, pid]),
        )
        for (device, pid), used in sorted(most.items())
    ]


def _health(events: Sequence[Event], ticks: Sequence[Event], interval_s: float) -> SensorHealth:
    late = [tick["late_ms"] for tick in ticks]
    cost = [tick["cost_ms"] for tick in ticks]
    missed = next((event["missed"] for event in events if event["event"] == "bye"), 0)
    return SensorHealth(
        interval_s=interval_s,
        ticks=len(ticks),
        missed_ticks=missed,
        lateness_mean_ms=round(sum(late) / len(late), 3) if late else None,
        lateness_max_ms=max(late, default=None),
        cost_ms_per_tick=round(sum(cost) / len(cost), 3) if cost else None,
        xid_missing=next((event["missing"] for event in events if event["event"] == "xid_listener"), None),
    )

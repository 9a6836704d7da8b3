"""From log lines of the sensor to one table."""

from __future__ import annotations

from typing import Any

from gpubalance.record.rank_log import Event
from gpubalance.record.samples import CounterReading, ProcessMemory, QuotaReading, Samples, XidEvent
from gpubalance.sampling.collect import collect_samples


def collect(events: list[Event], **values: Any) -> Samples:
    settings: dict[str, Any] = {"start_s": 100.0, "interval_s": 0.1, "rank_of_pid": {}}
    return collect_samples(events, **{**settings, **values})


def columns(*keys: str) -> Event:
    return {"event": "columns", "t_s": 100.0, "columns": list(keys)}


def sample(t_s: float, *rows: list[float | None], late_ms: float = 0.0, cost_ms: float = 1.0) -> Event:
    return {"event": "sample", "t_s": t_s, "late_ms": late_ms, "cost_ms": cost_ms, "rows": [list(row) for row in rows]}


def missing(device: int, **reasons: str) -> Event:
    return {"event": "missing", "t_s": 100.0, "device": device, "reasons": reasons}


def processes(*listed: tuple[int, int, int | None]) -> Event:
    keys = ("device", "pid", "memory_used_bytes")
    return {"event": "processes", "t_s": 101.0, "processes": [dict(zip(keys, each, strict=True)) for each in listed]}


def test_rows_become_columns_of_each_device_on_one_time_axis() -> None:
    samples = collect(
        [
            columns("power_w", "sm_clock_mhz"),
            sample(100.5, [80.0, 345], [90.0, 1980]),
            sample(100.6, [81.0, 1980], [91.0, 1755]),
        ]
    )
    assert samples.t_s == [0.5, 0.6]
    assert [device.device for device in samples.devices] == [0, 1]
    assert samples.devices[0].columns == {"power_w": [80.0, 81.0], "sm_clock_mhz": [345, 1980]}
    assert samples.devices[1].columns == {"power_w": [90.0, 91.0], "sm_clock_mhz": [1980, 1755]}


def test_a_null_keeps_its_place_in_the_column() -> None:
    samples = collect([columns("power_w"), sample(101, [80.0]), sample(102, [None]), sample(103, [0.0])])
    assert samples.devices[0].columns == {"power_w": [80.0, None, 0.0]}


def test_a_column_that_never_held_a_value_is_left_out_and_its_reason_stays() -> None:
    samples = collect(
        [
            columns("power_w", "temperature_c"),
            missing(0, temperature_c="NOT_SUPPORTED"),
            sample(101, [80.0, None], [80.0, 35]),
            sample(102, [81.0, None], [81.0, 36]),
        ]
    )
    assert set(samples.devices[0].columns) == {"power_w"}
    assert samples.devices[0].missing == {"temperature_c": "NOT_SUPPORTED"}
    assert samples.devices[1].columns["temperature_c"] == [35, 36]
    assert samples.devices[1].missing == {}


def test_reasons_that_come_later_join_those_of_the_same_device() -> None:
    samples = collect(
        [
            columns("power_w"),
            missing(1, temperature_c="NOT_SUPPORTED"),
            sample(101, [80.0], [80.0]),
            missing(1, power_w="GPU_IS_LOST"),
            sample(102, [81.0], [None]),
        ]
    )
    assert samples.devices[1].missing == {"temperature_c": "NOT_SUPPORTED", "power_w": "GPU_IS_LOST"}
    assert samples.devices[0].missing == {}


def test_times_are_relative_to_the_start_of_the_run() -> None:
    samples = collect(
        [
            columns("power_w"),
            sample(103.25, [80.0]),
            {
                "event": "counters",
                "t_s": 104.5,
                "edge": "ddp begin",
                "device": 1,
                "values": {"energy_mj": 5, "pcie_replays": None},
                "missing": {"pcie_replays": "NOT_SUPPORTED"},
            },
            {"event": "xid", "t_s": 105.75, "nvml_index": 4, "xid": 79},
            {"event": "xid", "t_s": 106.0, "nvml_index": None, "xid": 48},
        ],
    )
    assert samples.t_s == [3.25]
    assert samples.counters == [
        CounterReading(
            t_s=4.5,
            edge="ddp begin",
            device=1,
            values={"energy_mj": 5, "pcie_replays": None},
            missing={"pcie_replays": "NOT_SUPPORTED"},
        )
    ]
    assert samples.xids == [XidEvent(t_s=5.75, nvml_index=4, xid=79), XidEvent(t_s=6.0, nvml_index=None, xid=48)]


def test_times_are_kept_to_a_tenth_of_a_millisecond() -> None:
    xid = {"event": "xid", "t_s": 100.00026, "nvml_index": 0, "xid": 13}
    samples = collect([columns("power_w"), sample(100.12344, [80.0]), xid])
    assert (samples.t_s, samples.xids[0].t_s) == ([0.1234], 0.0003)


def test_the_largest_memory_of_each_process_on_each_device_is_kept() -> None:
    samples = collect(
        [
            processes((0, 11, 5), (1, 12, 7)),
            processes((0, 11, 9), (1, 12, 3), (0, 12, 1)),
            processes((0, 11, 2)),
        ],
        rank_of_pid={11: 0, 12: 1},
    )
    assert samples.processes == [
        ProcessMemory(device=0, pid=11, rank=0, memory_used_bytes=9, first_seen_s=1.0, last_seen_s=1.0),
        ProcessMemory(device=0, pid=12, rank=1, memory_used_bytes=1, first_seen_s=1.0, last_seen_s=1.0),
        ProcessMemory(device=1, pid=12, rank=1, memory_used_bytes=7, first_seen_s=1.0, last_seen_s=1.0),
    ]


def test_when_a_process_was_first_and_last_seen_is_kept() -> None:
    looks = [{**processes((0, 99, 5)), "t_s": t_s} for t_s in (103.0, 101.0, 102.0)]
    (process,) = collect(looks).processes
    assert (process.first_seen_s, process.last_seen_s) == (1.0, 3.0)


def test_readings_of_the_cpu_quota_are_kept_by_time() -> None:
    read = {"event": "quota", "t_s": 104.0, "periods": 50, "throttled": 7}
    assert collect([read]).quota == [QuotaReading(t_s=4.0, periods=50, throttled=7)]


def test_a_process_of_nobody_here_has_no_rank() -> None:
    samples = collect([processes((0, 99, 5))], rank_of_pid={11: 0})
    assert [(process.pid, process.rank) for process in samples.processes] == [(99, None)]


def test_memory_that_was_never_known_is_null_and_one_known_value_is_enough() -> None:
    samples = collect(
        [
            processes((0, 11, None), (0, 12, None), (0, 13, 4), (0, 14, 0)),
            processes((0, 12, 6), (0, 13, None), (0, 14, None)),
        ]
    )
    used = {process.pid: process.memory_used_bytes for process in samples.processes}
    assert used == {11: None, 12: 6, 13: 4, 14: 0}


def test_health_tells_lateness_cost_and_missed_ticks() -> None:
    samples = collect(
        [
            columns("power_w"),
            sample(101, [80.0], late_ms=0.5, cost_ms=1.0),
            sample(102, [80.0], late_ms=2.5, cost_ms=2.0),
            sample(103, [80.0], late_ms=0.0, cost_ms=6.0),
            {"event": "bye", "t_s": 104.0, "missed": 7},
        ],
        interval_s=0.25,
    )
    health = samples.health
    assert health is not None
    assert (health.interval_s, health.ticks, health.missed_ticks) == (0.25, 3, 7)
    assert (health.lateness_mean_ms, health.lateness_max_ms, health.cost_ms_per_tick) == (1.0, 2.5, 3.0)
    assert (health.hung_in, health.died_with, health.xid_missing) == (None, None, None)


def test_a_sensor_that_never_ticked_has_null_and_not_zero() -> None:
    samples = collect([])
    assert (samples.t_s, samples.devices) == ([], [])
    health = samples.health
    assert health is not None
    assert (health.ticks, health.missed_ticks) == (0, 0)
    assert (health.lateness_mean_ms, health.lateness_max_ms, health.cost_ms_per_tick) == (None, None, None)


def test_how_the_sensor_ended_stands_beside_the_samples_that_it_took() -> None:
    events = [columns("power_w"), sample(101, [80.0]), {"event": "xid_listener", "t_s": 100.0, "missing": "UNKNOWN"}]
    hung = collect(events, hung_in="nvmlDeviceGetPowerUsage on the GPU with NVML index 1")
    died = collect(events, died_with="exit code -9: it said nothing")
    assert hung.health is not None
    assert died.health is not None
    assert hung.health.hung_in == "nvmlDeviceGetPowerUsage on the GPU with NVML index 1"
    assert died.health.died_with == "exit code -9: it said nothing"
    assert hung.health.xid_missing == died.health.xid_missing == "UNKNOWN"
    assert hung.t_s == died.t_s == [1.0]


def test_lines_of_other_kinds_change_nothing() -> None:
    events = [columns("power_w"), sample(101, [80.0])]
    stray = [{"event": "snapshot", "t_s": 100.0, "node": {}}, {"event": "unreadable", "t_s": 100.0, "text": "{"}]
    assert collect([*stray, *events, *stray]) == collect(events)

"""A real sensor process over a stand-in driver, and the parent's hold on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpubalance.errors import CannotMeasureError
from gpubalance.node.limits import cpu_throttling
from gpubalance.node.readings import COUNTERS, TICK
from gpubalance.record.rank_log import Event, LogTail
from gpubalance.record.samples import Samples
from gpubalance.sampling import client
from gpubalance.sampling.call_note import read_note
from gpubalance.sampling.client import SensorProcess, no_nvml_reason
from gpubalance.sampling.collect import collect_samples
from gpubalance.sampling.gpm import METRICS
from gpubalance.testing.profiles import h200_node
from tests.support import ROOT, eventually

Start = Callable[..., SensorProcess]
FOR_EVER_S = 600


def with_faults(*faults: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**h200_node(2), "faults": list(faults), **more}


def of_kind(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]


def written(folder: Path, kind: str) -> list[Event]:
    """Lines of a kind that are in the log by now."""
    return of_kind(LogTail(folder / "sensor.jsonl").read(), kind)


def samples_of(sensor: SensorProcess) -> Samples:
    return collect_samples(
        sensor.events,
        start_s=0.0,
        interval_s=0.05,
        rank_of_pid={},
        hung_in=sensor.hung_in,
        died_with=sensor.died_with,
    )


def waits_in(folder: Path, call: str) -> bool:
    """The sensor has been in this call for far longer than a call takes."""
    note = read_note(folder / "sensor.call")
    return note is not None and call in note[1] and time.monotonic() - note[0] > 0.2


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def sampling(start: Start, folder: Path, profile: dict[str, Any], ticks: int) -> SensorProcess:
    """A sensor that has taken so many samples of both GPUs and is still at it."""
    sensor = start(profile)
    sensor.node()
    sensor.begin([0, 1], [0, 1])
    eventually(lambda: len(written(folder, "sample")) >= ticks)
    return sensor


def test_the_first_answer_is_the_node(start: Start) -> None:
    node = start(h200_node(2)).node()
    assert [device.name for device in node.devices] == ["NVIDIA H200", "NVIDIA H200"]
    assert node.driver_version == "580.159.04"
    assert node.cpu_busy_before is not None
    assert 0 <= node.cpu_busy_before <= 1
    assert no_nvml_reason(node) is None


def test_a_node_without_a_driver_is_a_node_with_the_reason(start: Start) -> None:
    node = start(with_faults({"call": "nvmlInitWithFlags", "error": 18})).node()
    assert node.nvml_error == "LIB_RM_VERSION_MISMATCH"
    assert "differ in version" in str(no_nvml_reason(node))


def test_samples_arrive_as_columns_of_the_devices_of_the_plan(start: Start, tmp_path: Path) -> None:
    profile = h200_node(3)
    profile["devices"][2]["PowerUsage"] = 650_000
    sensor = start(profile)
    sensor.node()
    sensor.begin([2, 0], [0, 1])
    eventually(lambda: len(written(tmp_path, "sample")) >= 3)
    sensor.stop()
    samples = samples_of(sensor)
    ticks = len(samples.t_s)
    assert ticks >= 3
    assert samples.t_s == sorted(samples.t_s)
    assert samples.devices[0].columns["power_w"] == [650.0] * ticks
    assert samples.devices[1].columns["power_w"] == [79.408] * ticks
    assert set(samples.devices[0].columns) == {reading.key for reading in TICK if not reading.instead_of} | set(METRICS)
    assert samples.devices[0].missing == {}
    assert samples.health is not None
    assert samples.health.ticks == ticks
    assert (sensor.hung_in, sensor.died_with) == (None, None)


def test_nothing_is_sampled_before_it_is_asked_for(start: Start) -> None:
    sensor = start(h200_node(2))
    sensor.node()
    sensor.edge("too early")
    events = sensor.stop()
    assert of_kind(events, "sample") == of_kind(events, "counters") == []
    assert [event["event"] for event in events] == ["snapshot", "bye"]


def test_the_columns_are_named_once(start: Start, tmp_path: Path) -> None:
    sensor = sampling(start, tmp_path, h200_node(2), ticks=5)
    assert len(of_kind(sensor.stop(), "columns")) == 1


def test_the_cpu_quota_is_read_at_edges_where_the_control_group_counts(start: Start, tmp_path: Path) -> None:
    """Whether this machine has such counters or not."""
    sensor = sampling(start, tmp_path, h200_node(2), ticks=2)
    sensor.edge("ddp begin")
    read = of_kind(sensor.stop(), "quota")
    assert len(read) == (0 if cpu_throttling() is None else 2)
    assert all(0 <= each["throttled"] <= each["periods"] for each in read)


def test_counters_of_each_device_are_read_at_an_edge(start: Start, tmp_path: Path) -> None:
    profile = h200_node(2)
    profile["devices"][1] |= {"TotalEnergyConsumption": 4711, "RemappedRows": None}
    sensor = start(profile)
    sensor.node()
    sensor.begin([0, 1], [0, 1])
    sensor.edge("ddp begin")
    eventually(lambda: len(written(tmp_path, "counters")) == 2)
    sensor.edge("ddp end")
    eventually(lambda: len(written(tmp_path, "counters")) == 4)
    sensor.stop()
    counters = samples_of(sensor).counters
    assert [(c.edge, c.device) for c in counters] == [
        ("ddp begin", 0),
        ("ddp begin", 1),
        ("ddp end", 0),
        ("ddp end", 1),
    ]
    assert counters[0].values == {
        **dict.fromkeys((reading.key for reading in COUNTERS), 0),
        "energy_mj": 2570179,
        "pcie_replays": 1,
    }
    assert counters[1].values["energy_mj"] == 4711
    assert counters[1].missing == {"rows_remapped_uncorrectable": "NOT_SUPPORTED"}


def test_an_xid_in_mid_run_is_in_the_record(start: Start, tmp_path: Path) -> None:
    profile = {**h200_node(2), "xids": [{"device": 1, "xid": 79, "after": 2}]}
    sensor = start(profile)
    sensor.node()
    sensor.begin([0, 1], [0, 1])
    eventually(lambda: written(tmp_path, "xid"))
    sensor.stop()
    samples = samples_of(sensor)
    assert [(xid.nvml_index, xid.xid) for xid in samples.xids] == [(1, 79)]
    assert samples.health is not None
    assert samples.health.xid_missing is None


def test_ranks_on_the_cpu_are_followed_by_their_pids(start: Start, tmp_path: Path) -> None:
    sensor = start(with_faults({"call": "nvmlInitWithFlags", "error": 12}))
    sensor.node()
    sensor.begin([], [0])
    sensor.set_ranks({0: os.getpid()})
    eventually(lambda: any(row[0][1] is not None for row in (e["rows"] for e in written(tmp_path, "sample"))))
    sensor.stop()
    columns = samples_of(sensor).devices[0].columns
    assert set(columns) == {"cpu_percent", "resident_bytes"}
    assert max(value for value in columns["resident_bytes"] if value is not None) > 2**20


def test_ticks_that_a_slow_driver_cannot_keep_are_counted_as_missed(start: Start, tmp_path: Path) -> None:
    slow = {"call": "nvmlDeviceGetPowerUsage", "device": 0, "delay_s": 0.12}
    sensor = sampling(start, tmp_path, with_faults(slow), ticks=3)
    sensor.stop()
    health = samples_of(sensor).health
    assert health is not None
    assert health.missed_ticks >= 2 * health.ticks  # each tick takes more than two intervals of 0.05 s
    assert health.cost_ms_per_tick is not None
    assert health.cost_ms_per_tick >= 120


# A driver that hangs


@pytest.mark.parametrize(
    ("call", "device", "named"),
    [
        ("nvmlInitWithFlags", None, "nvmlInit"),
        ("nvmlDeviceGetHandleByIndex_v2", None, "nvmlDeviceGetHandleByIndex on the GPU with NVML index 0"),
        ("nvmlDeviceGetUUID", 1, "nvmlDeviceGetUUID on the GPU with NVML index 1"),
    ],
)
def test_a_driver_that_hangs_at_first_is_given_up_with_the_name_of_the_call(
    start: Start, monkeypatch: pytest.MonkeyPatch, call: str, device: int | None, named: str
) -> None:
    monkeypatch.setattr(client, "CALL_LIMIT_S", 0.4)
    monkeypatch.setattr(client, "INIT_LIMIT_S", 1.6)
    sensor = start(with_faults({"call": call, "device": device, "delay_s": FOR_EVER_S}))
    with pytest.raises(CannotMeasureError) as caught:
        sensor.node()
    assert caught.value.message == f"the NVIDIA driver does not answer: {named} did not return"
    assert caught.value.exit_code == 3
    assert "dmesg" in str(caught.value.next_step)
    assert eventually(lambda: sensor.process.poll() is not None)


def test_a_call_that_is_under_way_when_time_is_up_is_named(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sensor = start(with_faults({"call": "nvmlInitWithFlags", "delay_s": FOR_EVER_S}))
    eventually(lambda: read_note(tmp_path / "sensor.call"))
    monkeypatch.setattr(client, "SNAPSHOT_LIMIT_S", 0.1)
    with pytest.raises(CannotMeasureError, match="nvmlInit did not return"):
        sensor.node()


def test_a_sensor_that_never_comes_to_a_call_is_given_up_in_so_many_words(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SNAPSHOT_LIMIT_S", 0.0)
    sensor = start(h200_node(1))
    with pytest.raises(CannotMeasureError) as caught:
        sensor.node()
    assert caught.value.message == "the NVIDIA driver does not answer: no answer within 0 s"


def test_a_driver_that_hangs_in_mid_run_is_noticed_named_and_left_with_the_samples_so_far(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hang = {"call": "nvmlDeviceGetPowerUsage", "device": 1, "after": 5, "delay_s": FOR_EVER_S}
    sensor = sampling(start, tmp_path, with_faults(hang), ticks=5)
    monkeypatch.setattr(client, "CALL_LIMIT_S", 1.0)
    monkeypatch.setattr(client, "STOP_LIMIT_S", 0.2)
    eventually(sensor.is_hung)
    events = sensor.stop()
    assert sensor.hung_in == "nvmlDeviceGetPowerUsage on the GPU with NVML index 1"
    assert sensor.died_with is None
    assert len(of_kind(events, "sample")) == 5
    samples = samples_of(sensor)
    assert samples.devices[0].columns["power_w"] == [79.408] * 5
    assert samples.health is not None
    assert samples.health.hung_in == sensor.hung_in
    assert eventually(lambda: sensor.process.poll() is not None)


def test_a_hang_that_nobody_looked_for_is_named_when_the_sensor_is_stopped(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hang = {"call": "nvmlDeviceGetMemoryInfo_v2", "device": 0, "after": 6, "delay_s": FOR_EVER_S}
    sensor = sampling(start, tmp_path, with_faults(hang), ticks=2)  # four of the six calls are the snapshot's
    eventually(lambda: waits_in(tmp_path, "nvmlDeviceGetMemoryInfo"))
    monkeypatch.setattr(client, "STOP_LIMIT_S", 0.2)
    assert len(of_kind(sensor.stop(), "sample")) == 2
    assert sensor.hung_in == "nvmlDeviceGetMemoryInfo on the GPU with NVML index 0"


def test_a_driver_that_answers_is_not_hung(start: Start, tmp_path: Path) -> None:
    sensor = sampling(start, tmp_path, h200_node(2), ticks=1)
    assert not sensor.is_hung()
    assert sensor.hung_in is None


# A GPU that goes away


def test_a_gpu_lost_in_mid_run_is_null_with_that_reason_and_the_other_is_intact(start: Start, tmp_path: Path) -> None:
    lost = {"call": "*", "device": 1, "error": 15, "after": 10}
    sensor = sampling(start, tmp_path, with_faults(lost), ticks=16)
    sensor.stop()
    samples = samples_of(sensor)
    whole, broken = samples.devices
    assert broken.missing == dict.fromkeys([*(r.key for r in TICK if not r.instead_of), *METRICS], "GPU_IS_LOST")
    assert broken.columns["power_w"] == [79.408] * 10 + [None] * (len(samples.t_s) - 10)
    assert whole.missing == {}
    assert all(None not in column for column in whole.columns.values())
    assert sensor.died_with is None


def test_a_reason_is_written_once_for_each_device_and_field(start: Start, tmp_path: Path) -> None:
    refused = {"call": "nvmlDeviceGetTemperature", "device": 0, "error": 4}
    sensor = sampling(start, tmp_path, with_faults(refused), ticks=8)
    told = [(e["device"], e["reasons"]) for e in of_kind(sensor.stop(), "missing")]
    assert told == [(0, {"temperature_c": "NO_PERMISSION"})]


# A sensor that goes away


def test_a_sensor_killed_in_mid_run_is_reported_and_its_samples_are_kept(start: Start, tmp_path: Path) -> None:
    sensor = sampling(start, tmp_path, h200_node(2), ticks=3)
    sensor.process.send_signal(signal.SIGKILL)
    eventually(lambda: sensor.process.poll() is not None)
    sensor.edge("nobody hears this")
    events = sensor.stop()
    assert sensor.died_with == "exit code -9, it said nothing"
    assert sensor.hung_in is None
    assert len(of_kind(events, "sample")) >= 3
    health = samples_of(sensor).health
    assert health is not None
    assert health.died_with == sensor.died_with


def test_a_sensor_that_fails_is_reported_with_its_last_words(start: Start, tmp_path: Path) -> None:
    sensor = sampling(start, tmp_path, h200_node(2), ticks=1)
    assert sensor.process.stdin is not None
    sensor.process.stdin.write(b"this is no order\n")
    sensor.process.stdin.flush()
    eventually(lambda: sensor.process.poll() is not None)
    sensor.stop()
    assert sensor.died_with is not None
    assert sensor.died_with.startswith("exit code 1, ")
    assert "JSONDecodeError" in sensor.died_with


def test_a_sensor_that_fails_before_its_first_answer_is_one_sentence_with_its_last_line(
    start: Start, tmp_path: Path
) -> None:
    sensor = start({"devices": "this is no list of devices"})
    with pytest.raises(CannotMeasureError) as caught:
        sensor.node()
    assert caught.value.message.startswith("the sensor process ended with 1: ")
    assert "\n" not in caught.value.message


def test_a_sensor_ends_in_good_order_when_its_parents_pipe_closes(start: Start, tmp_path: Path) -> None:
    sensor = sampling(start, tmp_path, h200_node(2), ticks=1)
    assert sensor.process.stdin is not None
    sensor.process.stdin.close()
    eventually(lambda: sensor.process.poll() is not None)
    assert sensor.process.returncode == 0
    assert len(written(tmp_path, "bye")) == 1


def test_stopping_twice_gives_the_same_events(start: Start, tmp_path: Path) -> None:
    sensor = sampling(start, tmp_path, h200_node(2), ticks=1)
    first = list(sensor.stop())
    assert sensor.stop() == first


PARENT = """
import os, signal, sys
from pathlib import Path
from gpubalance.launch.start import child_environment
from gpubalance.sampling.client import SensorProcess
sensor = SensorProcess(Path(sys.argv[1]), 0.05, child_environment(os.environ, ()), Path(sys.argv[2]))
sensor.node()
sensor.begin([0], [0])
print(sensor.process.pid, flush=True)
signal.pause()
"""


def test_a_sensor_that_hangs_in_the_driver_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(with_faults({"call": "nvmlDeviceGetPowerUsage", "delay_s": FOR_EVER_S})))
    command = [sys.executable, "-c", PARENT, str(tmp_path), str(profile)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}) as parent:
        assert parent.stdout is not None
        sensor = psutil.Process(int(parent.stdout.readline()))
        try:
            eventually(lambda: waits_in(tmp_path, "nvmlDeviceGetPowerUsage"))
        finally:
            parent.kill()
    eventually(lambda: gone(sensor))

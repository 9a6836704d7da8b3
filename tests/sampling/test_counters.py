"""One look at the slow counters, in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubalance.record.rank_log import Event, LogTail
from gpubalance.sampling.counters import CounterLooks
from gpubalance.testing.profiles import h200_node
from tests.support import eventually

Look = Callable[[dict[str, Any]], CounterLooks]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    def make(profile: dict[str, Any]) -> CounterLooks:
        path = tmp_path / "profile.json"
        path.write_text(json.dumps(profile))
        return CounterLooks(tmp_path, [0, 1], [0, 1], path)

    return make


def written(folder: Path) -> list[Event]:
    return LogTail(folder / "sensor.jsonl").read()


def test_a_look_reads_every_device_with_the_reasons_for_what_is_refused(look: Look, tmp_path: Path) -> None:
    profile = h200_node()
    profile["devices"][1]["RemappedRows"] = None
    looks = look(profile)
    looks.start("ddp begin")
    looks.wait(20)
    first, second = written(tmp_path)
    assert (first["edge"], first["device"], second["device"]) == ("ddp begin", 0, 1)
    assert (first["values"]["energy_mj"], first["missing"]) == (2570179, {})
    assert second["missing"] == {"rows_remapped_uncorrectable": "NOT_SUPPORTED"}
    assert looks.failures() == []


def test_a_look_that_dies_is_told_once_with_its_edge(look: Look, tmp_path: Path) -> None:
    looks = look(h200_node())
    (tmp_path / "profile.json").write_text("no profile")
    looks.start("ddp end")
    looks.wait(20)
    assert looks.failures() == [("ddp end", "the reading process ended with 1")]
    assert looks.failures() == []


def test_a_look_that_hangs_is_ended_and_told(look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = h200_node()
    profile["faults"] = [{"call": "nvmlDeviceGetTotalEnergyConsumption", "device": 1, "delay_s": 600}]
    looks = look(profile)
    looks.start("ddp begin")
    eventually(lambda: len(written(tmp_path)) == 1)
    monkeypatch.setattr("gpubalance.sampling.counters.LIMIT_S", 0.0)
    assert looks.failures() == [("ddp begin", "the reading process did not answer within 0 s")]
    assert looks.failures() == []

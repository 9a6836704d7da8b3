"""The all-reduce of the touch phase, against collectives that do it right and wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from gpubalance.record.rank_log import Event, LogTail
from gpubalance.workloads import touch
from tests.workloads.test_parts import make_context

SIZES = (1024, 4096)


def touched(folder: Path, reduce: Any, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What one rank alone writes, with this in place of an all-reduce."""
    monkeypatch.setattr(dist, "all_reduce", reduce)
    monkeypatch.setattr(touch, "MINIMUM_S", 1e-9)
    context = make_context(folder, touch_bytes=SIZES)
    touch.run(context)
    return LogTail(folder / "log.jsonl").read()


def test_each_size_is_a_line_and_every_collective_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    events = touched(tmp_path, lambda buffer, group: calls.append(buffer.numel()), monkeypatch)
    rows = [event for event in events if event["event"] == "touch"]
    assert [row["size_bytes"] for row in rows] == list(SIZES)
    assert [row["wrong_elements"] for row in rows] == [0, 0]
    assert set(calls) == {size // 4 for size in SIZES}
    fences = [(event["fence"], event["what"]) for event in events if event["event"] == "fence"]
    assert fences == [(number, "all_reduce") for number in range(1, 7)]


def test_every_wrong_element_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(buffer: torch.Tensor, group: Any) -> None:
        buffer[-3:] += 1

    rows = [event for event in touched(tmp_path, wrong, monkeypatch) if event["event"] == "touch"]
    assert [row["wrong_elements"] for row in rows] == [3, 3]

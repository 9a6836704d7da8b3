"""Overlapped steps against a clock and a step that do as they are told; whole passes are in `test_passes`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpubalance.record.rank_log import LogTail, RankLog
from gpubalance.workloads.rig import Rig
from tests.workloads.test_timed_loop import ScriptedClock

BLOCKS, STEPS = 8, 20
LONG_MS, USUAL_MS = 13.0, 11.0


class StartingStep:
    """As on two H200s: the first steps after DDP gets its gradients back take longer."""

    def __init__(self, clock: ScriptedClock) -> None:
        self._clock = clock
        self._released = False
        self.calls = 0

    def release_gradients(self) -> None:
        self._released = True

    def overlapped(self, _ddp: object, _fences: object) -> None:
        assert self._released
        self.calls += 1
        self._clock.now += LONG_MS if self.calls <= STEPS else USUAL_MS


def test_overlapped_steps_in_which_ddp_makes_its_buckets_are_not_timed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    clock = ScriptedClock()
    rig: Any = Rig.__new__(Rig)  # a real one needs a process group
    rig._clock, rig._log, rig._ddp, rig._fences = clock, RankLog(path), None, None
    rig._step = StartingStep(clock)
    rig._measure_overlapped(BLOCKS, STEPS)
    events = LogTail(path).read()
    assert [event["step_ms"] for event in events if event["event"] == "overlapped"] == [USUAL_MS] * BLOCKS
    assert [event["event"] for event in events].index("window") < [event["event"] for event in events].index(
        "overlapped"
    )
    assert rig._step.calls == (BLOCKS + 1) * (STEPS + 1)

"""The parent's hold on the sensor: start it, give it orders, abandon it when the driver hangs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpubalance.errors import CannotMeasureError
from gpubalance.node.nvml import explain
from gpubalance.record.node import Node
from gpubalance.record.rank_log import Event, LogTail
from gpubalance.sampling.call_note import read_note

SNAPSHOT_LIMIT_S = 30.0
"""Healthy nodes answer within 2 s; eight GPUs without persistence mode may take 20 s to initialise."""

CALL_LIMIT_S = 5.0
"""An NVML call takes microseconds to milliseconds; one that takes this long will not come back."""

INIT_LIMIT_S = 20.0

STOP_LIMIT_S = 3.0
REAP_LIMIT_S = 0.5
LAST_WORDS = 3000
"""Characters of a dead sensor's output that are kept."""
_POLL_S = 0.02


class SensorProcess:
    """A running sensor. Never waits for it without a limit."""

    def __init__(
        self,
        folder: Path,
        interval_s: float,
        environment: Mapping[str, str],
        stand_in: Path | None,
        *,
        ways: bool = False,
    ) -> None:
        """`ways`: the snapshot shall say how GPUs are joined as well."""
        self._folder = folder
        self._tail = LogTail(folder / "sensor.jsonl")
        self.events: list[Event] = []
        self.hung_in: str | None = None
        self.died_with: str | None = None
        """Exit code and last line of a sensor that ended before it was told to."""
        self.last_words: str | None = None
        command = [sys.executable, "-m", "gpubalance.sampling.sensor", "--folder", str(folder)]
        command += ["--parent", str(os.getpid()), "--interval", str(interval_s)]
        command += ["--stand-in", str(stand_in)] if stand_in is not None else []
        command += ["--ways"] if ways else []
        self._output = folder / "sensor.txt"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
            )

    def node(self) -> Node:
        """The node snapshot. Raises CannotMeasureError when the driver hangs or the sensor dies."""
        deadline = time.monotonic() + SNAPSHOT_LIMIT_S
        while time.monotonic() < deadline:
            for event in self._read():
                if event["event"] == "snapshot":
                    return Node.model_validate(event["node"])
            self._raise_if_gone()
            if self._note_hang(self._snapshot_call_limit_s()):
                break
            time.sleep(_POLL_S)
        self._note_hang(0.0)
        self.abandon()
        what = f"{self.hung_in} did not return" if self.hung_in else f"no answer within {SNAPSHOT_LIMIT_S:.0f} s"
        raise CannotMeasureError(
            f"the NVIDIA driver does not answer: {what}",
            "see `dmesg | grep -i nvrm` for Xid messages; a reset or a reboot is usually needed",
        )

    def _snapshot_call_limit_s(self) -> float:
        """The first call initialises the driver, and the first on a device the device: both may be slow."""
        note = read_note(self._folder / "sensor.call")
        slow = note is not None and ("nvmlInit" in note[1] or "GetHandle" in note[1])
        return INIT_LIMIT_S if slow else CALL_LIMIT_S

    def _raise_if_gone(self) -> None:
        code = self.process.poll()
        if code is None:
            return
        raise CannotMeasureError(f"the sensor process ended with {code}: {self._last_line()}")

    def _last_words(self) -> str | None:
        """Begin and end of what the sensor printed: a crash in the driver's library leaves its stack innermost call
        first, a Python error its message last.
        """
        text = self._output.read_text(errors="replace").strip()
        return (
            text if len(text) <= LAST_WORDS else f"{text[: LAST_WORDS // 2]}\n...\n{text[-LAST_WORDS // 2 :]}"
        ) or None

    def _last_line(self) -> str:
        text = self._output.read_text(errors="replace").strip().splitlines()
        return text[-1] if text else "it said nothing"

    def _read(self) -> list[Event]:
        fresh = self._tail.read()
        self.events += fresh
        return fresh

    def _note_hang(self, limit_s: float) -> bool:
        note = read_note(self._folder / "sensor.call")
        if note is not None and time.monotonic() - note[0] > limit_s:
            self.hung_in = note[1]
        return self.hung_in is not None

    def catch_up(self) -> None:
        """Take what the sensor has written until now into `events`, which `stop` completes."""
        self._read()

    def is_hung(self) -> bool:
        """True once an NVML call has not returned for CALL_LIMIT_S; the call is then in `hung_in`."""
        return self._note_hang(CALL_LIMIT_S)

    def begin(self, nvml_indices: Sequence[int], devices: Sequence[int]) -> None:
        """Start sampling these NVML indices as these devices of the plan; no indices: follow the ranks' processes."""
        self._say({"do": "begin", "nvml": list(nvml_indices), "devices": list(devices)})

    def set_ranks(self, pids: Mapping[int, int]) -> None:
        """Tell which process each rank is."""
        self._say({"do": "ranks", "pids": {str(rank): pid for rank, pid in pids.items()}})

    def edge(self, name: str) -> None:
        """Have the slow counters read now."""
        self._say({"do": "edge", "name": name})

    def _say(self, command: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a dead sensor is seen when its log is collected
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()

    def stop(self) -> list[Event]:
        """Stop sampling and return all events. A sensor that does not stop is abandoned, with `hung_in` set."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        deadline = time.monotonic() + STOP_LIMIT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if self.process.poll() is None:
            self._note_hang(0.0)
            self.hung_in = self.hung_in or "an unknown call"
            self.abandon()
        self._read()
        if self.hung_in is None and not any(event["event"] == "bye" for event in self.events):
            self.died_with = f"exit code {self.process.poll()}, {self._last_line()}"
            self.last_words = self._last_words()
        return self.events

    def abandon(self) -> None:
        """Kill the sensor and hardly wait: a process in the kernel's D state dies only when the call returns."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=REAP_LIMIT_S)


def no_nvml_reason(node: Node) -> str | None:
    """Why NVML is unusable, in words; None when it answers."""
    return None if node.nvml_error is None else explain(node.nvml_error)

"""The parent's side of the inspectors: start one a GPU, collect what they say, abandon those that hang."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpubalance.record.probe import DeviceDetail
from gpubalance.record.rank_log import Event, LogTail
from gpubalance.sampling.inspector import CALL_LIMIT_S, INIT_LIMIT_S, hung_call, log_path, stack_path

GRACE_S = 0.5
"""The watchdog thread writes the stack at its limit; the parent gives it this long before it reads it."""

_POLL_S = 0.02


@dataclass
class _Inspector:
    """One running inspector and what it has said."""

    index: int
    process: subprocess.Popen[bytes]
    tail: LogTail
    events: list[Event] = field(default_factory=list)
    heard_s: float = field(default_factory=time.monotonic)
    failed: str | None = None
    done: bool = False

    def poll(self, folder: Path) -> None:
        """Take new lines; find out whether it is done, dead, or has not been heard for too long."""
        code = self.process.poll()
        fresh = self.tail.read()
        if fresh:
            self.events += fresh
            self.heard_s = time.monotonic()
        said = {event["event"] for event in self.events}
        limit_s = CALL_LIMIT_S if said & {"values", "links", "peers"} else INIT_LIMIT_S
        if "bye" in said:
            self.done = True
        elif code is not None:
            self.failed, self.done = f"the process that asked it ended with {code}{self._last_call(folder)}", True
        elif time.monotonic() - self.heard_s > limit_s + GRACE_S or self._stack(folder):
            call = hung_call(self._stack(folder)) or "an unknown call"
            self.failed, self.done = f"{call} did not return within {CALL_LIMIT_S:g} s", True

    def _stack(self, folder: Path) -> str:
        try:
            return stack_path(folder, self.index).read_text(errors="replace")
        except OSError:
            return ""

    def _last_call(self, folder: Path) -> str:
        """Faulthandler writes the stack of a crash to the process's output."""
        output = (folder / f"inspector-{self.index}.txt").read_text(errors="replace")
        call = hung_call(output)
        return f" in {call}" if call else ""


@contextlib.contextmanager
def _running(
    folder: Path, indices: Sequence[int], environment: Mapping[str, str], stand_in: Path | None
) -> Iterator[list[_Inspector]]:
    """All inspectors; killed at the end, and hardly waited for: one in the kernel's D state cannot die yet."""
    inspectors = [_start(folder, index, len(indices), environment, stand_in) for index in indices]
    try:
        yield inspectors
    finally:
        for inspector in inspectors:
            with contextlib.suppress(ProcessLookupError):
                inspector.process.kill()
        for inspector in inspectors:
            with contextlib.suppress(subprocess.TimeoutExpired):
                inspector.process.wait(timeout=0.2)


def _start(folder: Path, index: int, count: int, environment: Mapping[str, str], stand_in: Path | None) -> _Inspector:
    command = [sys.executable, "-m", "gpubalance.sampling.inspector", "--folder", str(folder)]
    command += ["--parent", str(os.getpid()), "--nvml", str(index), "--count", str(count)]
    command += ["--stand-in", str(stand_in)] if stand_in is not None else []
    for path in (log_path(folder, index), stack_path(folder, index)):
        path.unlink(missing_ok=True)  # an earlier look's
    with (folder / f"inspector-{index}.txt").open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(environment),
            start_new_session=True,
        )
    return _Inspector(index, process, LogTail(log_path(folder, index)))


def inspect_devices(
    folder: Path, count: int, environment: Mapping[str, str], stand_in: Path | None
) -> list[DeviceDetail]:
    """Details of all GPUs in NVML's order; one whose process hung or died keeps what it said before."""
    with _running(folder, range(count), environment, stand_in) as inspectors:
        while not all(inspector.done for inspector in inspectors):
            for inspector in inspectors:
                if not inspector.done:
                    inspector.poll(folder)
            time.sleep(_POLL_S)
    return [_detail(inspector) for inspector in inspectors]


def _detail(inspector: _Inspector) -> DeviceDetail:
    said: dict[str, Any] = {}
    failed = inspector.failed
    for event in inspector.events:
        if event["event"] == "values":
            said |= {"values": event["values"], "missing": event["missing"]}
        elif event["event"] in ("links", "peers"):
            said[event["event"]] = event[event["event"]]
        elif event["event"] == "failed":
            failed = event["reason"]
    return DeviceDetail(nvml_index=inspector.index, failed=failed, **said)

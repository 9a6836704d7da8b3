"""The parent's side of the inspectors: start one a GPU, collect what they say, abandon those that hang."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpubalance.record.probe import DeviceDetail
from gpubalance.record.rank_log import Event, LogTail
from gpubalance.sampling.inspector import CALL_LIMIT_S, INIT_LIMIT_S, hung_call, log_path, stack_path

GRACE_S = 0.5
"""The watchdog thread writes the stack at its limit; the parent waits this much longer for it."""

START_LIMIT_S = 30.0
"""Python and its modules may come from a slow file system."""

_POLL_S = 0.02


@dataclass(frozen=True)
class _Task:
    """What is asked, and how long each stage may take."""

    folder: Path
    count: int
    environment: Mapping[str, str]
    stand_in: Path | None
    call_limit_s: float
    init_limit_s: float

    def limit_s(self, said: set[str]) -> float:
        """How long an inspector that has said this may be silent."""
        if "begin" not in said:
            return START_LIMIT_S
        return self.init_limit_s if said == {"begin"} else self.call_limit_s


@dataclass
class _Inspector:
    """One running inspector and what it has said."""

    index: int
    task: _Task
    process: subprocess.Popen[bytes]
    tail: LogTail
    events: list[Event] = field(default_factory=list)
    heard_s: float = field(default_factory=time.monotonic)
    failed: str | None = None
    done: bool = False

    def poll(self) -> None:
        """Take new lines; find out whether it is done, dead, or has not been heard for too long."""
        code = self.process.poll()
        fresh = self.tail.read()
        if fresh:
            self.events += fresh
            self.heard_s = time.monotonic()
        said = {str(event["event"]) for event in self.events}
        if "bye" in said:
            self.done = True
        elif code is not None:
            self.failed, self.done = f"the process that asked it ended with {code}{self._last_call()}", True
        else:
            self._watch(said)

    def _watch(self, said: set[str]) -> None:
        """The stack may be half written, so that one without a call on it counts only after the time of grace."""
        limit_s = self.task.limit_s(said)
        call = hung_call(self._stack())
        if call is not None:
            self.failed, self.done = f"{call} did not return within {limit_s:g} s", True
        elif time.monotonic() - self.heard_s > limit_s + GRACE_S:
            self.failed, self.done = f"the process that asks it was silent for {limit_s:g} s", True

    def _stack(self) -> str:
        try:
            return stack_path(self.task.folder, self.index).read_text(errors="replace")
        except OSError:
            return ""

    def _last_call(self) -> str:
        """Faulthandler writes the stack of a crash to the process's output."""
        output = (self.task.folder / f"inspector-{self.index}.txt").read_text(errors="replace")
        call = hung_call(output)
        return f" in {call}" if call else ""


@contextlib.contextmanager
def _running(task: _Task) -> Iterator[list[_Inspector]]:
    """All inspectors; killed at the end, and hardly waited for: one in the kernel's D state cannot die yet."""
    inspectors: list[_Inspector] = []
    try:
        inspectors.extend(_start(task, index) for index in range(task.count))
        yield inspectors
    finally:
        for inspector in inspectors:
            with contextlib.suppress(ProcessLookupError):
                inspector.process.kill()
        for inspector in inspectors:
            with contextlib.suppress(subprocess.TimeoutExpired):
                inspector.process.wait(timeout=0.2)


def _start(task: _Task, index: int) -> _Inspector:
    command = [sys.executable, "-m", "gpubalance.sampling.inspector", "--folder", str(task.folder)]
    command += ["--parent", str(os.getpid()), "--nvml", str(index), "--count", str(task.count)]
    command += ["--limit", str(task.call_limit_s), "--init-limit", str(task.init_limit_s)]
    command += ["--stand-in", str(task.stand_in)] if task.stand_in is not None else []
    for path in (log_path(task.folder, index), stack_path(task.folder, index)):
        path.unlink(missing_ok=True)  # an earlier look's
    with (task.folder / f"inspector-{index}.txt").open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(task.environment),
            start_new_session=True,
        )
    return _Inspector(index, task, process, LogTail(log_path(task.folder, index)))


def inspect_devices(
    folder: Path,
    count: int,
    environment: Mapping[str, str],
    stand_in: Path | None,
    *,
    call_limit_s: float = CALL_LIMIT_S,
    init_limit_s: float = INIT_LIMIT_S,
) -> list[DeviceDetail]:
    """Details of all GPUs in NVML's order; one whose process hung or died keeps what it said before."""
    task = _Task(folder, count, environment, stand_in, call_limit_s, init_limit_s)
    with _running(task) as inspectors:
        while not all(inspector.done for inspector in inspectors):
            for inspector in inspectors:
                if not inspector.done:
                    inspector.poll()
            time.sleep(_POLL_S)
    return [_detail(inspector) for inspector in inspectors]


def _detail(inspector: _Inspector) -> DeviceDetail:
    """All that it said; why something is missing is said with the values and with the links."""
    said: dict[str, Any] = {"missing": {}}
    failed = inspector.failed
    for event in inspector.events:
        said["missing"] |= event.get("missing", {})
        said |= {part: event[part] for part in ("values", "links", "peers") if event["event"] == part}
        if event["event"] == "failed":
            failed = event["reason"]
    return DeviceDetail(nvml_index=inspector.index, failed=failed, **said)

"""What the kernel says of a process that makes no progress. Reads only files that answer whatever the process is in:
`cmdline` and its like wait for a lock of its memory, which a process stuck in a driver may hold.

See proc(5).
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessState:
    """The state of one process."""

    letter: str | None
    missing: str | None = None
    """Why there is no letter."""
    stopped_by: str | None = None
    traced_by: int | None = None
    waits_in: str | None = None
    answers: bool = False
    """It has a handler for SIGUSR1, which would kill it otherwise."""


def read_state(pid: int, proc: Path = PROC) -> ProcessState:
    """The state of a process, as far as it can be read."""
    folder = proc / str(pid)
    try:
        stat = (folder / "stat").read_text(errors="replace")
        status = (folder / "status").read_text(errors="replace")
    except OSError as error:
        return ProcessState(None, error.strerror or type(error).__name__)
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    letter = stat.rpartition(")")[2].split()[0]
    caught = int(fields.get("SigCgt", "0").strip(), 16)
    tracer = int(fields.get("TracerPid", "0").strip())
    return ProcessState(
        letter,
        stopped_by=_stop_signal(pid) if letter == "T" else None,
        traced_by=tracer or None,
        waits_in=_waits_in(folder),
        answers=bool(caught >> (signal.SIGUSR1 - 1) & 1),
    )


def _stop_signal(pid: int) -> str | None:
    """Only a parent is told which signal it was; the news is left for others to read."""
    try:
        news = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if news is None or news.si_status not in {known.value for known in signal.Signals}:
        return None
    return signal.Signals(news.si_status).name


def _waits_in(folder: Path) -> str | None:
    """Kernels show it to the user's own processes, or to nobody (0)."""
    try:
        name = (folder / "wchan").read_text(errors="replace").strip()
    except OSError:
        return None
    return name if name not in ("", "0") else None

"""Progress on stderr: a plain line a phase; on a terminal also the blocks as they come."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

from gpubalance.record.node import Node
from gpubalance.record.run import Plan
from gpubalance.reports.header import plan_lines
from gpubalance.reports.printable import printable

LABELS = {
    "join": "ranks find each other",
    "solo": "each device alone",
    "ddp": "DDP, fenced and overlapped",
    "passes": "short DDP passes",
    "collectives": "collectives",
    "nccl_log": "NCCL's log, in fresh processes",
    "data_parallel": "DataParallel",
    "links": "copies over each link",
    "touch": "small all-reduces in fresh processes",
}


class StderrDisplay:
    """Writes lines to stderr; a line that is being rewritten appears on terminals only."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._live = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._open_line = ""

    def plan(self, plan: Plan, node: Node) -> None:
        """The plan."""
        for line in plan_lines(plan, node):
            self.say(line)

    def say(self, text: str) -> None:
        """A line that stays."""
        self._close()
        self._write(f"{printable(text)}\n")

    def phase(self, name: str, attempt: int) -> None:
        """A phase begins; shown with the seconds since the start."""
        again = " (again)" if attempt and name != "nccl_log" else ""
        text = f"[{time.monotonic() - self._start:5.1f} s] {LABELS.get(name, printable(name))}{again}"
        self._close()
        if self._live:
            self._open_line = text
            self._write(text)
        else:
            self._write(f"{text}\n")

    def advance(self, blocks: int) -> None:
        """Blocks done, on a terminal only, and where they fit: a line that wraps cannot be rewritten."""
        text = f"{self._open_line}, {blocks} blocks"
        if self._live and len(text) < _columns():
            self._write(f"\r{text}")

    def close(self) -> None:
        """End a line that is still open."""
        self._close()

    def _close(self) -> None:
        if self._open_line:
            self._write("\n")
            self._open_line = ""

    def _write(self, text: str) -> None:
        """Nobody who stopped reading the progress ends the measurement."""
        if sys.stderr is None:
            return
        encoding = sys.stderr.encoding or "ascii"
        with suppress(OSError, ValueError):
            sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
            sys.stderr.flush()


def _columns() -> int:
    """Of the terminal that stderr is; 80 where it does not say."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80

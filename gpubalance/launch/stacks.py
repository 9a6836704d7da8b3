"""Python's stacks of ranks that make no progress: asked for by a signal, read from a file, summed up in one line."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

POLL_S = 0.02
QUIET_S = 0.1
"""A dump of many threads is written in many pieces; after this long without one it is whole."""

LONGEST = 20_000
"""Characters of one rank's stacks that are kept; a rank under torch has some 10 threads."""

_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)')


def ask(pids: Mapping[int, int]) -> set[int]:
    """Have the ranks' processes (rank -> pid) write their stacks. Returns the ranks that could be asked."""
    asked = set()
    for rank, pid in pids.items():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGUSR1)
            asked.add(rank)
    return asked


def await_answers(paths: Mapping[int, Path], until_s: float) -> dict[int, str]:
    """What each rank wrote, rank -> text, of those that answered before this monotonic time."""
    sizes = dict.fromkeys(paths, 0)
    changed_s = time.monotonic()
    while (now := time.monotonic()) < until_s:
        fresh = {rank: _size(path) for rank, path in paths.items()}
        if fresh != sizes:
            sizes, changed_s = fresh, now
        elif all(sizes.values()) and now - changed_s > QUIET_S:
            break
        time.sleep(POLL_S)
    return {rank: paths[rank].read_text(errors="replace")[:LONGEST] for rank, size in sizes.items() if size}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def main_thread_at(stack: str) -> str | None:
    """Where the main thread is: its innermost call, and the innermost one in gpubalance's own code if that is another.

    faulthandler writes the main thread last, and of each thread the innermost call first.
    """
    frames = [match for match in map(_FRAME.fullmatch, stack.rpartition("hread 0x")[2].splitlines()) if match]
    if not frames:
        return None
    own = [frame for frame in frames if "/gpubalance/" in frame["file"]]
    chosen = [frames[0], *(own[:1] if own[:1] != frames[:1] else [])]
    return ", called from ".join(_place(frame) for frame in chosen)


def _place(frame: re.Match[str]) -> str:
    return f"{frame['name']} ({'/'.join(Path(frame['file']).parts[-2:])}:{frame['line']})"

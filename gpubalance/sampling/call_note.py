"""A note of the NVML call that is under way, in shared memory, so that a hang has a name.

The sensor writes it before each call and clears it after; whoever waits for the sensor reads it. Writing costs
less than 1 us, a file write per call would cost a hundred times more.
"""

from __future__ import annotations

import mmap
import time
from pathlib import Path

_SIZE = 256


class CallNote:
    """The writing end."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)

    def __call__(self, call: str, device: int | None) -> None:
        """Note that this call on this NVML index begins now; an empty call means that none is under way."""
        text = f"{time.monotonic():.6f} {call} {'' if device is None else device}" if call else ""
        self._map[:_SIZE] = text.encode()[:_SIZE].ljust(_SIZE, b"\0")


def read_note(path: Path) -> tuple[float, str] | None:
    """When the call under way began (monotonic clock) and what it is, or None when there is none.

    Nothing locks the note: one that is seen half written is none, because the sensor is at work just now.
    """
    try:
        text = path.read_bytes().rstrip(b"\0").decode()
        begin, call, device = text.split(" ", 2)
        where = f" on the GPU with NVML index {device}" if device else ""
        return float(begin), f"nvml{call}{where}"
    except (FileNotFoundError, ValueError):
        return None

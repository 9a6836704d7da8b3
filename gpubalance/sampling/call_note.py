"""A note of the NVML call that is under way, so that a hang has a name.

The sensor writes it before each call and clears it after; whoever waits for the sensor reads it. It is one write of
a fixed size to a small file, about 1 us.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_SIZE = 128


class CallNote:
    """The writing end."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self("", None)

    def __call__(self, call: str, device: int | None) -> None:
        """Note that this call on this NVML index begins now; an empty call means that none is under way."""
        text = f"{time.monotonic():.6f} {call} {'' if device is None else device}" if call else ""
        os.pwrite(self._descriptor, text.encode()[:_SIZE].ljust(_SIZE, b"\0"), 0)


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

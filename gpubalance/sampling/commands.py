"""What the parent says to the sensor: one JSON object a line on the sensor's standard input.

{"do": "begin", "nvml": [0, 1], "devices": [0, 1]}    sample these NVML indices, as these devices of the plan
{"do": "ranks", "pids": {"0": 4711}}                  sample these processes, by rank
{"do": "edge", "name": "ddp begin"}                   read the slow counters now
{"do": "stop"}                                        write what is left and end; so does end of file
"""

from __future__ import annotations

import json
import os
import select
from typing import Any

Command = dict[str, Any]


class Commands:
    """Reads commands without ever blocking longer than asked."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""

    def wait(self, seconds: float) -> list[Command]:
        """Commands that arrive within the time; returns early with the first ones. End of file is a stop."""
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, seconds))
        if not ready:
            return []
        data = os.read(self._descriptor, 65536)
        if not data:
            return [{"do": "stop"}]
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines if line]

"""The lines that ranks and the sensor write and the parent follows: one JSON object a line.

A log is a plain file, so that it outlives a crash: what a rank measured before it died is kept. Every line has
`event` and `t_s` (the machine-wide monotonic clock, which is one for all processes of a Linux host).

Fence lines are written once a step, just before the rank enters a collective, because "which rank did not enter"
is what names the culprit of a hang. Writing one costs about 3 us.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class RankLog:
    """The writing end, owned by one process. Not thread safe."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.phase = "start"
        self.where = "work"

    def write(self, event: str, **values: Any) -> None:
        """Append one line. Raises OSError (a full disk) and ValueError (NaN) rather than lose an event."""
        line = json.dumps({"event": event, "t_s": time.monotonic(), **values}, allow_nan=False, ensure_ascii=True)
        self._append(line.encode() + b"\n")

    def begin(self, phase: str) -> None:
        """Start a phase; what the rank writes until `end` belongs to it."""
        self.phase = phase
        self.write("phase_begin", phase=phase)

    def end(self) -> None:
        """End the current phase."""
        self.write("phase_end", phase=self.phase)
        self.phase = "between"

    def entering(self, fence: int, what: str = "collective") -> None:
        """Say that collective number `fence` is entered now; `what` is a plain word for it."""
        self.where = "collective"
        self._append(
            b'{"event":"fence","t_s":%.6f,"fence":%d,"what":"%s"}\n' % (time.monotonic(), fence, what.encode())
        )

    def _append(self, data: bytes) -> None:
        """One write, so that lines of several writers never mix. A disk that takes only a part of it fails the next
        write, which raises.
        """
        while data:
            data = data[os.write(self._descriptor, data) :]

    def left(self) -> None:
        """Say (to this process only) that the collective returned."""
        self.where = "work"


class LogTail:
    """The reading end: yields whole lines as they appear, never half a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""

    def read(self) -> list[Event]:
        """Return the events written since the last call; [] while the file does not exist.

        A line that is not a JSON object is returned as an `unreadable` event, because a log that was cut off
        (a full disk) must be seen, not skipped.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_parse(line) for line in lines if line]


def _parse(line: bytes) -> Event:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict) or "event" not in event:
        return {"event": "unreadable", "t_s": time.monotonic(), "text": line[:200].decode(errors="replace")}
    return event

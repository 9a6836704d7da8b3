"""One measurement at a time on a machine: two would each measure the other.

An abstract Unix socket is the lock: it needs no writable folder and no rights, so that it holds between users and
whatever TMPDIR is; it is gone the moment its owner dies, and the kernel tells who holds it. It reaches as far as the
network namespace, which on a bare node is the machine. A run in another container is seen by what it does: memory,
utilization and processes on a GPU before the start, foreign processes and lost cores during the run.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

from gpubalance.errors import BusyError

_NAME = "\0gpubalance-measuring"


class MeasuringLock:
    """Held from `acquire` until `release` or the end of the process."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def acquire(self, *, force: bool) -> str | None:
        """Take the lock. Raises BusyError that names the holder; with `force` goes on without it, and returns who holds
        it.
        """
        if sys.platform != "linux":
            return None
        held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            held.bind(_NAME)
        except OSError:
            held.close()
            other = f"another gpubalance ({_holder()})"
            if not force:
                raise BusyError(
                    f"{other} is measuring here; two at once would disturb each other", "wait for it, or give --force"
                ) from None
            return other
        held.listen(socket.SOMAXCONN)  # nobody accepts: whoever is refused leaves a connection in the queue
        self._socket = held
        return None

    def release(self) -> None:
        """Give the lock back; does nothing when it is not held."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _holder() -> str:
    """The pid of whoever listens, as the kernel tells it (0 when it lives in another pid namespace)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(_NAME)
            raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return "pid unknown"
    pid = struct.unpack("3i", raw)[0]
    return f"pid {pid}" if pid not in (0, os.getpid()) else "pid unknown"

"""The plainest way to stdout, for a command that must import nothing heavy."""

from __future__ import annotations

import sys

from gpubalance.errors import CannotMeasureError


def write_stdout(data: bytes) -> None:
    """Write and flush. Raises CannotMeasureError when it cannot be done: a result that nobody saw never passes, and
    Python alone would say nothing about a closed stdout and exit with 0.
    """
    if sys.stdout is None:
        raise CannotMeasureError("stdout is closed: the result could not be written")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        sys.stdout = None  # so that the flush at exit has nowhere to fail
        raise CannotMeasureError(f"the result could not be written to stdout: {error.strerror}") from None


def write_text(text: str) -> None:
    """Text in stdout's own encoding; what it cannot hold is spelled out."""
    encoding = (sys.stdout.encoding if sys.stdout is not None else None) or "ascii"
    write_stdout(text.encode(encoding, "backslashreplace"))

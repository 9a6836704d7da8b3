"""Every expected failure, and the exit code that stands for it.

GpubalanceError
|-- UsageError          the request is wrong: a flag, a value, a file            exit 2
|-- CannotMeasureError  the request is right, but nothing could be judged        exit 3
|   `-- BusyError       somebody else is using what would be measured            exit 3
`-- Interrupted         a signal ended the run                                   exit 128 + signal

An expected failure is one sentence and a next step; it never shows a traceback unless `--debug` asks for one.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The only place that defines exit codes.

    A parser of options owns 2 in every shell convention, so an unhealthy node is 1 and never 2;
    "could not judge" is apart from both, because a scheduler must not drain a node for it.
    """

    PASS = 0
    FAIL = 1
    USAGE = 2
    NO_VERDICT = 3


class GpubalanceError(Exception):
    """Base of all expected failures: `message` is one sentence, `next_step` what the reader can do."""

    exit_code: int = ExitCode.NO_VERDICT

    def __init__(self, message: str, next_step: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step


class UsageError(GpubalanceError):
    """The request itself is wrong, and would be wrong on every machine or on this one."""

    exit_code = ExitCode.USAGE


class CannotMeasureError(GpubalanceError):
    """Nothing can be judged here: no usable device, a dead driver, a broken torch."""

    exit_code = ExitCode.NO_VERDICT


class BusyError(CannotMeasureError):
    """Somebody else is using what would be measured, so that every number would be about both."""


class Interrupted(GpubalanceError):  # noqa: N818  (it is a request to stop, not an error)
    """A signal asked the run to stop; `signal_number` decides the exit code."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by signal {signal_number}")
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number

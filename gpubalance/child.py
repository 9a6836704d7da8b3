"""What every child process does first, so that none outlives its parent whatever happens to it."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends, and end at once if it already has.

    The signal fires when the *thread* that spawned us ends, so parents spawn from their main thread. Between
    fork and this call the parent may have died: getppid tells. Signals are set back to their defaults, because a
    parent that was started with SIGINT ignored (`cmd &` in a script) hands that down.

    See prctl(2), PR_SET_PDEATHSIG.
    """
    _ask_for_signal(signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if os.getppid() != parent:
        os._exit(1)


def answer_with_stacks(path: Path) -> None:
    """Have SIGUSR1 write the Python stacks of all threads to the end of this file, now and whatever the process is in.

    The handler is faulthandler's own, in C: it needs no interpreter, so that it answers from within a CUDA call too.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)  # stays open for good
    faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True)


def wait_for_turn() -> None:
    """Return when standard input ends: at once for most children; the parent closes the pipe of one that it held."""
    sys.stdin.read()


def end_with_launcher(launcher: int) -> None:
    """Ask for SIGTERM when the launcher that started this process ends; it is handled like any other SIGTERM.

    torchrun that is killed with -9 leaves its workers behind otherwise.
    """
    _ask_for_signal(signal.SIGTERM)
    if os.getppid() != launcher:
        os.kill(os.getpid(), signal.SIGTERM)


def _ask_for_signal(number: signal.Signals) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)

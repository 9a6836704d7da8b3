"""Whose turn it is, when several workers run the suite side by side on cores that some tests need for themselves."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def turn(door: Path, room: Path, *, alone: bool) -> Iterator[None]:
    """Hold a turn among all processes that name these two files: any number of them together, or one alone.

    Who waits to be alone keeps the door, so that nobody enters before.
    """
    with ExitStack() as inside:
        with _locked(door, fcntl.LOCK_EX):
            inside.enter_context(_locked(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        yield


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    with path.open("rb") as file:
        fcntl.flock(file, how)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a process forked meanwhile has the file open as well

"""A file that is either a run of ours or a log of another tool: read once, told apart by what is in it."""

from __future__ import annotations

from pathlib import Path

from gpubalance.readers.detect import read_foreign
from gpubalance.record.file import LARGEST_BYTES, run_of
from gpubalance.record.foreign import Foreign
from gpubalance.record.run import Run
from gpubalance.record.untrusted import name_of, read_bytes


def load_side(path: Path) -> Run | Foreign:
    """One side of a comparison. `-` is standard input. Raises UsageError that says what is wrong with the file."""
    name, data = name_of(path), read_bytes(path, LARGEST_BYTES, "run or log")
    return read_foreign(name, data) or run_of(name, data)

"""What NCCL and torch left in files about a hang: NCCL's warnings and the dumps of torch's flight recorder."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

READ_BYTES = 2**20
"""Read from the end of each file: what matters is the last that NCCL said."""

MOST_LINES, LONGEST_LINE = 20, 400
DUMP_PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""The newer name first. https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html"""

BUFFER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
OLD_DUMP_PREFIX = "/tmp/nccl_trace_rank_"  # noqa: S108  (torch's, not ours)
NEW_DUMP_PREFIX = "torch/comm_lib_trace_rank_"
"""Of newer versions (seen in torch 2.13), below the user's cache."""


def nccl_warnings(output: Path, pid: int | None, environment: Mapping[str, str]) -> list[str]:
    """The last WARN lines of one rank, from what it printed and from its NCCL_DEBUG_FILE."""
    paths = [output]
    pattern = environment.get("NCCL_DEBUG_FILE", "")
    if pattern and pid is not None:
        paths.append(Path(pattern.replace("%h", socket.gethostname()).replace("%p", str(pid))))
    lines = [line.strip()[:LONGEST_LINE] for path in paths for line in _end_of(path) if "NCCL WARN" in line]
    return lines[-MOST_LINES:]


def _end_of(path: Path) -> list[str]:
    try:
        if not path.is_file():  # a terminal or a pipe is named as well, and would not end
            return []
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - READ_BYTES))
            return file.read(READ_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []


def recorder_is_on(environment: Mapping[str, str]) -> bool:
    """Whether the user wants torch's flight recorder. Newer versions record unless told otherwise: there a pipe to ask
    by is enough.
    """
    sizes = [environment[name] for name in BUFFER_SIZES if environment.get(name)]
    return any(size != "0" for size in sizes) if sizes else bool(environment.get(PIPE))


def trigger_dumps(ranks: int, environment: Mapping[str, str]) -> bool:
    """Ask torch for its dumps where its watchdog reads a pipe for that, once a second. False where none does."""
    prefix, asked = environment.get(PIPE), False
    for rank in range(ranks) if prefix else ():
        path = Path(f"{prefix}{rank}.pipe")
        with suppress(OSError):
            if path.is_fifo():
                descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                try:
                    os.write(descriptor, b"1\n")
                    asked = True
                finally:
                    os.close(descriptor)
    return asked


def _cache(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/")) / ".cache")


def find_dumps(ranks: int, environment: Mapping[str, str], since_s: float) -> list[str]:
    """Dumps written after this time of the wall clock, by path. They are pickles: named, never opened."""
    named = [environment[name] for name in DUMP_PREFIXES if environment.get(name)]
    found = []
    for prefix in named or [OLD_DUMP_PREFIX, str(_cache(environment) / NEW_DUMP_PREFIX)]:
        for rank in range(ranks):
            with suppress(OSError):
                if Path(f"{prefix}{rank}").stat().st_mtime >= since_s:
                    found.append(f"{prefix}{rank}")
    return found

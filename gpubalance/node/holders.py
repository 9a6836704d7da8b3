"""Processes that are dead, or cannot be killed, and still hold a GPU."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubalance.node.host import read_text
from gpubalance.node.part import Part, error_name, names_in
from gpubalance.node.users import user_name

PAUSE_S = 0.1
"""A healthy process is in the D state for the length of one call to the driver; one that is stuck stays there."""

_KERNEL_THREAD = 0x00200000
"""linux/sched.h, PF_KTHREAD."""


@dataclass(frozen=True)
class _Suspect:
    pid: int
    state: str
    name: str


def read_holders(root: Path, pause_s: float = PAUSE_S) -> Part:
    """Zombies and processes in uninterruptible sleep, seen so twice, with a /dev/nvidia* file open."""
    first = _suspects(root)
    if not first:
        return {"holders": []}, {}
    time.sleep(pause_s)
    holders: list[dict[str, Any]] = []
    refused = None
    for suspect in sorted(first & _suspects(root), key=lambda each: each.pid):
        files, reason = _gpu_files(root, suspect.pid)
        refused = refused or reason
        if files:
            owner = _owner(root, suspect.pid)
            holders.append({"pid": suspect.pid, "state": suspect.state, "name": suspect.name, "owner": owner,
                            "files": files})  # fmt: skip
    return {"holders": holders}, {} if refused is None else {"holders": refused}


def _suspects(root: Path) -> set[_Suspect]:
    pids = [int(name) for name in names_in(root / "proc") or [] if name.isdecimal()]
    found = {_suspect(pid, read_text(root / f"proc/{pid}/stat")) for pid in pids}
    return {suspect for suspect in found if suspect is not None}


def _suspect(pid: int, stat: str | None) -> _Suspect | None:
    """proc(5): pid (name) state ppid pgrp session tty tpgid flags ...; the name may hold blanks and brackets."""
    before, _, after = (stat or "").rpartition(")")
    fields = after.split()
    if len(fields) < 7 or fields[0] not in ("Z", "D") or int(fields[6]) & _KERNEL_THREAD:
        return None
    return _Suspect(pid, fields[0], before.partition("(")[2])


def _gpu_files(root: Path, pid: int) -> tuple[list[str], str | None]:
    """Files of all its threads: after a kill the first thread is a zombie while one that is stuck keeps the files."""
    files: set[str] = set()
    for thread in names_in(root / f"proc/{pid}/task") or []:
        folder = root / f"proc/{pid}/task/{thread}/fd"
        try:
            files.update(str(link.readlink()) for link in folder.iterdir())
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        except OSError as error:
            return [], error_name(error)
    return sorted(name for name in files if name.startswith("/dev/nvidia")), None


def _owner(root: Path, pid: int) -> str | None:
    try:
        return user_name(root, (root / f"proc/{pid}").stat().st_uid)
    except OSError:
        return None

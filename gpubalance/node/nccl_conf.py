"""Files that set NCCL's variables behind the user's back.

NCCL reads NCCL_CONF_FILE or, where that is unset, ~/.nccl.conf, then /etc/nccl.conf. What is set already stays: the
environment wins over the first file, and that over the second.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpubalance.node.host import SECRET
from gpubalance.node.users import local_user

_LINE = re.compile(r"(NCCL_\w+)=(.*)")
"""NCCL strips nothing: a line that begins with a blank, or a blank before the equals sign, sets another variable."""


def read_nccl_conf(root: Path, environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """NCCL_ variables by file, in the order in which NCCL reads the files; files without any are left out."""
    found = {label: _variables(path) for label, path in _files(root, environment)}
    return {label: variables for label, variables in found.items() if variables}


def variables_of_files(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What these files set, as far as the environment does not: what NCCL takes of them."""
    found: dict[str, str] = {}
    for variables in read_nccl_conf(root, environment).values():
        found = {**variables, **found}
    return {name: value for name, value in found.items() if name not in environment}


def _files(root: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """The home is called ~, so that no user's name is recorded."""
    chosen = environment.get("NCCL_CONF_FILE")
    user = local_user(root, os.getuid())
    home = user.home if user is not None else environment.get("HOME")
    if chosen:
        yield chosen, _below(root, chosen)
    elif home:
        yield "~/.nccl.conf", _below(root, home) / ".nccl.conf"
    yield "/etc/nccl.conf", root / "etc/nccl.conf"


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/") if path.startswith("/") else Path(path)


def _variables(path: Path) -> dict[str, str]:
    """The first line for a name counts, as in NCCL."""
    variables: dict[str, str] = {}
    for line in (_regular_text(path) or "").splitlines():
        match = _LINE.fullmatch(line)
        if match and not SECRET.search(match[1]):
            variables.setdefault(match[1], match[2])
    return variables


def _regular_text(path: Path) -> str | None:
    """A named pipe would never end."""
    try:
        return path.read_text(errors="replace") if stat.S_ISREG(path.stat().st_mode) else None
    except OSError:
        return None

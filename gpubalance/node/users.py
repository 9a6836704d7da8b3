"""Users by the file /etc/passwd alone: a question to a directory service can hang, and a container's uid may have no
name at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpubalance.node.host import read_text


@dataclass(frozen=True)
class User:
    """A local user."""

    name: str
    home: str


def local_user(root: Path, uid: int) -> User | None:
    """The user with this number, None where the file does not list it."""
    for line in (read_text(root / "etc/passwd") or "").splitlines():
        fields = line.split(":")
        if len(fields) == 7 and fields[2] == str(uid):
            return User(fields[0], fields[5])
    return None


def user_name(root: Path, uid: int) -> str:
    """The name of a user, or its number."""
    user = local_user(root, uid)
    return user.name if user is not None else f"uid {uid}"

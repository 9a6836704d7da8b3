"""Profiles by name, and from files."""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Callable
from pathlib import Path

from gpubalance.errors import UsageError
from gpubalance.testing.profiles.ampere import a100x8
from gpubalance.testing.profiles.blackwell import b200x8, gb10
from gpubalance.testing.profiles.desktop import geforce4090x2, vgpu, wsl
from gpubalance.testing.profiles.hopper import h100x8, h200_node, h200x8
from gpubalance.testing.profiles.node import Profile
from gpubalance.testing.profiles.troubled import lost_card, mig, no_rights, sick

_CATALOGUE: dict[str, Callable[[], Profile]] = {
    "h200x2": h200_node,
    "h200x8": h200x8,
    "h100x8": h100x8,
    "b200x8": b200x8,
    "a100x8": a100x8,
    "geforce4090x2": geforce4090x2,
    "gb10": gb10,
    "mig": mig,
    "wsl": wsl,
    "vgpu": vgpu,
    "lost_card": lost_card,
    "no_rights": no_rights,
    "sick": sick,
}


def names() -> tuple[str, ...]:
    """All names, healthy hardware first."""
    return tuple(_CATALOGUE)


def profile(name: str) -> Profile:
    """A fresh copy of the profile, which the caller may change. Raises UsageError with the nearest name."""
    make = _CATALOGUE.get(name)
    if make is None:
        near = difflib.get_close_matches(name, _CATALOGUE, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"there is no simulated node {name!r}{meant}", f"choose one of: {', '.join(_CATALOGUE)}")
    return copy.deepcopy(make())


def load_profile(text: str) -> Profile:
    """The profile of that name, or that the file of that name holds. Raises UsageError when it is neither."""
    if text in _CATALOGUE or not (text.endswith(".json") or Path(text).is_file()):
        return profile(text)
    try:
        values = json.loads(Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{text} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{text} is not JSON: {error}") from error
    if not isinstance(values, dict) or not isinstance(values.get("devices"), list) or "system" not in values:
        raise UsageError(f"{text} is not a simulated node", "it needs the keys system and devices")
    return values

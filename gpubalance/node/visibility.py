"""What CUDA_VISIBLE_DEVICES leaves visible, and which entry was dropped and why.

The rules are those that torch and the CUDA driver follow (read off torch 2.13): the list ends, silently, at the
first entry that cannot be honoured. Here nothing is silent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

VARIABLE = "CUDA_VISIBLE_DEVICES"
_LEADING_NUMBER = re.compile(r"[+-]?\d{1,600}")  # int() refuses texts of many more digits


@dataclass(frozen=True)
class Dropped:
    """An entry that yields no device, and why."""

    entry: str
    reason: str


@dataclass(frozen=True)
class Visible:
    """Indices into the UUIDs that were given, in CUDA's order, and what was dropped."""

    indices: tuple[int, ...]
    dropped: tuple[Dropped, ...] = ()


def read_visibility(value: str | None, uuids: Sequence[str | None]) -> Visible:
    """Resolve the value of CUDA_VISIBLE_DEVICES against the UUIDs of all devices (None: unknown)."""
    if value is None:
        return Visible(tuple(range(len(uuids))))
    entries = [entry.strip() for entry in value.split(",")]
    if entries == [""]:
        return Visible((), (Dropped("", "set but empty, which hides every device"),))
    if entries[0].startswith("MIG-"):
        return _cut_short(entries, 0, (), "a MIG slice: at most one can be used, and NCCL does not work on it")
    if entries[0].startswith("GPU-"):
        return _read(entries, lambda entry: match_uuid(entry, uuids))
    return _read(entries, lambda entry: _match_index(entry, len(uuids)))


def _read(entries: list[str], match: Callable[[str], int | str]) -> Visible:
    indices: list[int] = []
    for position, entry in enumerate(entries):
        found = match(entry)
        if isinstance(found, str):
            return _cut_short(entries, position, indices, found)
        if found in indices:
            return Visible(
                (), tuple(Dropped(e, f"{entry!r} repeats a device, which empties the list") for e in entries)
            )
        indices.append(found)
    return Visible(tuple(indices))


def _cut_short(entries: list[str], position: int, kept: Sequence[int], reason: str) -> Visible:
    culprit, *unread = entries[position:]
    after = [Dropped(entry, f"not read: the list ends at {culprit!r}") for entry in unread]
    return Visible(tuple(kept), (Dropped(culprit, reason), *after))


def match_uuid(beginning: str, uuids: Sequence[str | None]) -> int | str:
    """Index of the only UUID with this beginning, or why there is not exactly one."""
    matches = [index for index, uuid in enumerate(uuids) if uuid is not None and uuid.startswith(beginning)]
    if not beginning.startswith("GPU-"):
        return "not a GPU UUID: kinds of entry cannot be mixed"
    if not matches:
        return "no GPU has a UUID that begins so"
    if len(matches) > 1:
        return f"ambiguous: {len(matches)} GPUs have a UUID that begins so"
    return matches[0]


def _match_index(entry: str, count: int) -> int | str:
    number = _LEADING_NUMBER.match(entry)
    if number is None:
        return "empty" if not entry else "not an index: kinds of entry cannot be mixed, and CUDA knows no such word"
    index = int(number.group())
    if index < 0:
        return "negative, which hides the rest of the list"
    if index >= count:
        return f"there are only {count} GPUs" if count != 1 else "there is only 1 GPU"
    return index

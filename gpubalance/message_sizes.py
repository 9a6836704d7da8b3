"""Sizes of messages as people write them: 8:8G:x2, or 64M,1G. K, M and G are binary, as in nccl-tests."""

from __future__ import annotations

import re

from gpubalance.errors import UsageError

LARGEST_BYTES = 2**40
MOST_SIZES = 256
EXAMPLE = "for example: --sizes 8:8G:x2 or --sizes 64M,1G"

_SIZE = re.compile(r"(?P<number>\d{1,15})\s*(?P<unit>[KMG]?)(i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def parse_sizes(text: str) -> tuple[int, ...]:
    """Bytes, ascending, each once. `A:B:xF` is A, A x F, ... up to B; `A:B:+S` is A, A + S, ... up to B; else a list.

    Raises UsageError that names the part that is wrong.
    """
    if ":" in text:
        return _ladder(text)
    return tuple(sorted({_size(part, text) for part in text.split(",")}))


def _ladder(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 3:
        raise UsageError(f"sizes {text!r:.60} are not FROM:TO:STEP", EXAMPLE)
    first, last = _size(parts[0], text), _size(parts[1], text)
    if first > last:
        raise UsageError(f"sizes {text!r:.60}: {parts[0]} is larger than {parts[1]}", EXAMPLE)
    return _climb(text, first, last, parts[2])


def _climb(text: str, first: int, last: int, step: str) -> tuple[int, ...]:
    grows = step[:1].lower() == "x"
    if not grows and step[:1] != "+":
        raise UsageError(f"sizes {text!r:.60}: step {step!r:.20} is neither xFACTOR nor +BYTES", EXAMPLE)
    by = _factor(step[1:], text) if grows else _size(step[1:], text)
    sizes: list[int] = []
    size = first
    while size <= last:
        if len(sizes) == MOST_SIZES:
            raise UsageError(f"sizes {text!r:.60} are more than {MOST_SIZES}", "give a larger step")
        sizes.append(size)
        size = size * by if grows else size + by
    return tuple(sizes)


def _factor(factor: str, text: str) -> int:
    if not (factor.isdecimal() and factor.isascii() and len(factor) < 6) or int(factor) < 2:
        raise UsageError(f"sizes {text!r:.60}: factor {factor!r:.20} is no whole number from 2 on", EXAMPLE)
    return int(factor)


def _size(part: str, text: str) -> int:
    match = _SIZE.fullmatch(part.strip())
    if match is None or not part.isascii():
        raise UsageError(f"sizes {text!r:.60}: {part.strip()!r:.20} is no size", EXAMPLE)
    size = int(match["number"]) * _UNITS[match["unit"].lower()]
    if not 0 < size <= LARGEST_BYTES:
        raise UsageError(f"sizes {text!r:.60}: {part.strip()} is not between 1 byte and 1024G", EXAMPLE)
    return size


def size_text(size: int) -> str:
    """Exact, in the largest unit that divides it: 1 GiB, 1536 MiB, 1000 B."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"

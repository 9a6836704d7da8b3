"""Reading what anybody may have written: bounded in size and in time, and strict about JSON."""

from __future__ import annotations

import json
import math
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpubalance.errors import UsageError

STDIN = Path("-")

PIPE_LIMIT_S = 10.0
"""How long a named pipe or a device may say nothing; opening a pipe that nobody writes to would wait for ever."""

_CHUNK_BYTES = 2**20

SMALLEST, LARGEST = 1e-100, 1e100
"""No measured value lies outside, and what does leaves the range of floats as soon as it is squared."""

LONGEST_INTEGER = 40
"""Characters; sums of what has 64 bits are far shorter."""


def name_of(path: Path) -> str:
    """How messages call it: `-` is standard input."""
    return "standard input" if path == STDIN else str(path)


def read_bytes(path: Path, limit: int, what: str = "run") -> bytes:
    """All bytes of a file, a pipe or standard input (`-`).

    Raises UsageError that begins with the name when it cannot be read, has more bytes than the limit (a size can lie:
    /dev/zero has none), or is a pipe or a device that says nothing.
    """
    name = name_of(path)
    try:
        data = _stdin(limit) if path == STDIN else _file(path, limit)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{name} cannot be read: its name holds a NUL") from None
    if len(data) > limit:
        raise UsageError(f"{name} has more than {limit} bytes, no {what} is so large")
    return data


def _stdin(limit: int) -> bytes:
    """Waits as long as whoever writes needs: a measurement may be at the other end."""
    if sys.stdin is None:
        raise UsageError("standard input is closed")
    return sys.stdin.buffer.read(limit + 1)


def _file(path: Path, limit: int) -> bytes:
    data = bytearray()
    with _opened(path) as descriptor:
        while len(data) <= limit:
            if not _ready(descriptor):
                raise UsageError(f"{path} said nothing for {PIPE_LIMIT_S:g} s", "give a file, or - and pipe it in")
            chunk = os.read(descriptor, _CHUNK_BYTES)
            if not chunk:
                break
            data += chunk
    return bytes(data)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Without waiting for whoever should write; regular files do not know the difference."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _ready(descriptor: int) -> bool:
    """Whether there is something to read, or an end; regular files always have one."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(1000 * PIPE_LIMIT_S))


def json_object(name: str, data: bytes) -> dict[str, Any]:
    """The one object in a strict JSON text: UTF-8, no key twice, no NaN, no endless number.

    Raises UsageError that begins with the name.
    """
    try:
        document = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_int=_integer,
        )
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{name} is not a gpubalance run")
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ in which of two equal keys they believe."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in values if keys.count(key) > 1)
        raise ValueError(f"key {twice!r} stands twice in one object")
    return values


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _integer(text: str) -> int:
    """Python takes long to read long numbers, or refuses."""
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"{text[:LONGEST_INTEGER]}... is a number of {len(text)} characters")
    return int(text)


def strange_number(value: Any) -> float | None:
    """A number anywhere within that nothing measures: a whole one beyond 64 bits, one beyond `SMALLEST` and `LARGEST`.

    Infinity is left to the record, which says what field cannot be infinite.
    """
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, int | float) and _is_strange(item):
            return item
    return None


def _is_strange(number: float) -> bool:
    """Counters of NVML have 64 bits, without a sign."""
    if isinstance(number, int):
        return not -(2**63) <= number < 2**64
    return math.isfinite(number) and bool(number) and not SMALLEST < abs(number) < LARGEST

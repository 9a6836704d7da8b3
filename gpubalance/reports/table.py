"""A table that every format with real tables can draw: html, markdown."""

from __future__ import annotations

from dataclasses import dataclass

NONE = "-"
"""Not measured or not offered; never 0."""


@dataclass(frozen=True)
class Column:
    """The head of a column; its unit stands below the name."""

    name: str
    unit: str = ""
    words: bool = False
    """Words stand on the left, numbers on the right."""


@dataclass(frozen=True)
class Table:
    """Cells as text, in the order in which they are read. Text from outside is as it came: each format escapes."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    matrix: bool = False
    """Rows and columns are the same things, and a cell says how two of them are joined."""


def words(*names: str) -> tuple[Column, ...]:
    """Columns of text."""
    return tuple(Column(name, words=True) for name in names)


def number(value: float | None, digits: int = 0, scale: float = 1.0) -> str:
    """The number with so many digits after the point; a dash when nobody measured it."""
    return NONE if value is None else f"{scale * value:.{digits}f}"


def shown(value: object) -> str:
    """A setting or version as text; null and an empty list are a dash."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or NONE
    return NONE if value is None else str(value)

"""Lines of a report, and the one place where text is folded: once, for the width that it is read at."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpubalance.reports.printable import printable

WIDTH = 80
"""Columns, wherever a report is not read on a terminal."""


@dataclass(frozen=True)
class Line:
    """A line and how it is meant; colour follows the meaning and never carries it alone."""

    text: str
    style: str = ""
    hang: str | None = None
    """What stands before its further lines where it is folded. None: a row of a table, which is never folded."""


def paragraph(text: str, hang: str = "", style: str = "") -> Line:
    """Text that is folded where it is too long."""
    return Line(printable(text), style, hang)


def put_together(sections: Iterable[Sequence[Line]], width: int) -> list[Line]:
    """The sections that say something, an empty line between them, folded for this width."""
    lines: list[Line] = []
    for section in filter(None, sections):
        lines += [Line(""), *section] if lines else section
    return fold(lines, width)


def fold(lines: Iterable[Line], width: int) -> list[Line]:
    """Break what is too long at spaces only: an id or a number is never split, even where it is longer than a line."""
    return [Line(part, line.style) for line in lines for part in _parts(line, width)]


def _parts(line: Line, width: int) -> list[str]:
    if line.hang is None or len(line.text) <= width:
        return [line.text]
    own = len(line.text) - len(line.text.lstrip())
    longest = max(map(len, line.text.split()), default=0)
    hang = " " * max(0, min(max(own, len(line.hang)), width - longest))  # else the terminal would break within an id
    return textwrap.wrap(line.text, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)

"""Text from outside (device names, variables, error messages of ranks) as a terminal may be given it."""

from __future__ import annotations

import textwrap

WIDTH = 80
"""Columns of everything that people read in a terminal."""


def printable(text: str) -> str:
    """The same text on one line, without anything that a terminal obeys instead of showing it.

    White space of any kind becomes a space; escape sequences, marks that turn the direction of writing and bytes that
    are no text are spelled out as Python spells them: ESC is a backslash and x1b.
    """
    return "".join(map(_shown, text))


def wrapped(text: str, indent: str = "", width: int = WIDTH) -> list[str]:
    """Printable lines, at least one, broken at spaces only: an id or a number is never split, even where it is longer
    than the line. `indent` stands before all but the first.
    """
    return textwrap.wrap(
        printable(text), width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else character.encode("unicode_escape").decode("ascii")

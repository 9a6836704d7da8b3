"""Text from outside (device names, variables, error messages of ranks) as a terminal may be given it."""

from __future__ import annotations


def printable(text: str) -> str:
    """The same text on one line, without anything that a terminal obeys instead of showing it.

    White space of any kind becomes a space; escape sequences, marks that turn the direction of writing and bytes that
    are no text are spelled out as Python spells them: ESC is a backslash and x1b.
    """
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else character.encode("unicode_escape").decode("ascii")

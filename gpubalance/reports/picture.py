"""The terminal report as a picture: one SVG file, no script, no font or anything else from the network."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from gpubalance.reports.fold import WIDTH, Line

STYLES = {"pass": "bold green", "warn": "bold yellow", "fail": "bold red", "inconclusive": "bold magenta", "": ""}
"""Colour follows the meaning of a line; the words carry it."""

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Rich's template asks a font server; a report asks nobody."""


def svg_text(lines: Sequence[Line], title: str) -> str:
    """An SVG of the report as a terminal would show it; the same lines give the same bytes."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(Text(line.text, style=STYLES[line.style]), soft_wrap=True, highlight=False)
    return _FONTS.sub("", console.export_svg(title=title, unique_id="gpubalance"))

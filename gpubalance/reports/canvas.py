"""A sheet to draw on: an SVG that can stand inside a page of either colour, the same bytes every time.

Ink has the colour of the text around the picture. Numbers in paths have one decimal, a tenth of a pixel.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_PX = 720
INK = "#010203"
"""Stands for the colour of the text; no palette holds it."""

BLUE, ORANGE, GREEN, VERMILLION, PURPLE = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7"
"""Of Okabe and Ito's palette, which people who see colours differently can tell apart. A page can put a lighter blue
in the place of blue by the variable --blue, since that one alone is too dark for a dark page.
"""

_RC: Mapping[str, Any] = {
    "svg.fonttype": "none",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11.0,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
}
_NOTHING = {"Date": None, "Creator": None, "Format": None, "Type": None}
_POINTS_PER_INCH = 72
"""An SVG of matplotlib has 72 units an inch: a unit is a pixel here."""


def svg_of(name: str, height_px: int, draw: Callable[[Figure], None]) -> str:
    """The drawing as an <svg> element. `name` keeps its ids apart from those of other drawings on the page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with mpl.rc_context():
        mpl.rcdefaults()  # a matplotlibrc of the user is not part of the record
        settings: Any = mpl.rcParams  # its type lists each key by name
        settings.update({**_RC, "svg.hashsalt": name})
        figure = Figure(figsize=(WIDTH_PX / _POINTS_PER_INCH, height_px / _POINTS_PER_INCH))
        draw(figure)
        figure.savefig(buffer, format="svg", metadata=_NOTHING)
    return _cleaned(buffer.getvalue())


def _cleaned(svg: str) -> str:
    """Without what only a file of its own needs, ids that nobody points to, and digits that nobody sees."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"|(<svg[^>]*?) height="[^"]*"', r"\1\2", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' d="[^"]*"', _rounded, svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    svg = svg.replace(f": {BLUE}", f": var(--blue, {BLUE})")
    return svg.replace(f": {INK}", ": currentColor").strip()


def _rounded(path: re.Match[str]) -> str:
    return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}", path[0]).replace("\n", "")


def axes_in(figure: Figure, *, left: float, top: float, right: float, bottom: float) -> Axes:
    """Axes with these edges, in pixels from the upper left corner."""
    width, height = WIDTH_PX, figure.get_figheight() * _POINTS_PER_INCH
    box = (left / width, 1 - bottom / height, (right - left) / width, (bottom - top) / height)
    return figure.add_axes(box)


def legend(figure: Figure, names: Sequence[tuple[str, str]]) -> None:
    """Name and colour of each thing in the drawing, in one line at its top."""
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colour, label=name) for name, colour in names]
    figure.legend(handles=handles, loc="upper left", ncols=len(handles), borderaxespad=0.2, handlelength=1.2)

"""Keeps the last verdict for `gpubalance verdict`. Where it has no place nothing was kept before either; where it
cannot be written the older one stays, which is said.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gpubalance.cli.entry import complain
from gpubalance.record.history import state_home


def remember(keep: Callable[[Path], object]) -> None:
    """Call `keep` with the state folder, if there is one. A command whose verdict cannot be kept goes on."""
    home = state_home(os.environ)
    if home is None:
        return
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    try:
        keep(home)
    except OSError as error:
        complain(f"the verdict could not be kept in {home}: {error.strerror}", None)

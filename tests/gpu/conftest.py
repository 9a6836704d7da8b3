"""Which tests can run here: asked of nvidia-smi, which is a process of its own; nothing here imports torch."""

from __future__ import annotations

import functools
import subprocess

import pytest

ANSWER_S = 60.0
"""The first call after a boot loads the driver, which takes seconds on a large node."""


@functools.cache
def listed_gpus() -> int | None:
    """How many GPUs nvidia-smi lists; None where it does not answer, which is no reason to skip anything."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines()) if done.returncode == 0 else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test marked `gpus(count)` where fewer are listed, before its fixtures start anything."""
    marker = item.get_closest_marker("gpus")
    listed = listed_gpus() if marker is not None else None
    if marker is not None and listed is not None and listed < marker.args[0]:
        pytest.skip(f"needs {marker.args[0]} GPUs, nvidia-smi lists {listed}")

"""Asks torch about itself in a child, because importing it takes seconds and may never come back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from gpubalance.record.probe import TorchDetail

LIMIT_S = 60.0
"""Importing torch takes 3 s from a local disk, and may take long from a cold network file system."""

_POLL_S = 0.02


class TorchQuestion:
    """A running child; the answer is waited for only when everything else is known."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._output = folder / "torch.txt"
        self._begin_s = time.monotonic()
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gpubalance.workloads.torch_facts", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                start_new_session=True,
            )

    def answer(self) -> TorchDetail:
        """What it said, or why it said nothing."""
        try:
            while self._process.poll() is None and time.monotonic() - self._begin_s < LIMIT_S:
                time.sleep(_POLL_S)
            code = self._process.poll()
        finally:
            self.end()
        if code is None:
            return TorchDetail(error=f"importing torch took more than {LIMIT_S:g} s")
        lines = self._output.read_text(errors="replace").strip().splitlines()
        try:
            return TorchDetail.model_validate(json.loads(lines[-1]))
        except (IndexError, ValueError, ValidationError):
            return TorchDetail(error=f"the process that imports torch ended with {code}")

    def end(self) -> None:
        """Kill the child if it still runs."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0.5)

"""The folder that a run's processes share: job, logs, sensor. Private to the user, and gone afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpubalance.errors import CannotMeasureError
from gpubalance.launch.launcher_env import Share

CANDIDATES = ("/dev/shm", "/var/tmp")  # noqa: S108  (checked for ownership below)


@contextmanager
def workspace(share: Share) -> Iterator[Path]:
    """A fresh private folder. Under a launcher, one that all parents of the run find by the same name.

    Raises CannotMeasureError when no folder can be written.
    """
    folder = _shared_folder(share) if share.run_key else _own_folder()
    try:
        yield folder
    finally:
        if share.reports:
            shutil.rmtree(folder, ignore_errors=True)


def _own_folder() -> Path:
    for base in (None, *CANDIDATES):
        try:
            return Path(tempfile.mkdtemp(prefix="gpubalance-", dir=base))
        except OSError:
            continue
    raise CannotMeasureError("no folder for temporary files can be written", "set TMPDIR to one that can")


def _shared_folder(share: Share) -> Path:
    """All parents of one launcher have the same parent process, so its pid is part of the name."""
    name = f"gpubalance-{os.getuid()}-{share.run_key}-{os.getppid()}"
    try:
        folder = Path(tempfile.gettempdir()) / "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CannotMeasureError(
            f"no folder for temporary files can be written: {error.strerror}", "set TMPDIR to one that can"
        ) from None
    if folder.lstat().st_uid != os.getuid():  # lstat: a link of somebody else's is somebody else's
        raise CannotMeasureError(f"{folder} belongs to somebody else", "set TMPDIR to a private folder")
    return folder

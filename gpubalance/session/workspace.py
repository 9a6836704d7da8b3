"""The folder that a run's processes share: job, logs, sensor. Private to the user, and gone afterwards.

Under a launcher the parents of a run must meet in one folder, although none of them starts another. The one that
reports makes a fresh folder, and then a link to it whose name follows from the run's key; the others wait for the
link. What an earlier run of the same key left behind is never taken for this one: the folder's owner holds a lock
that ends with its process, and a run that is over has given the order `end`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpubalance.errors import CannotMeasureError
from gpubalance.launch.launcher_env import Share
from gpubalance.session.share import FIRST_ORDER_LIMIT_S, POLL_S, is_over

CANDIDATES = ("/dev/shm", "/var/tmp")  # noqa: S108  (checked for ownership below)
OWNER = "owner.lock"
ANOTHER = "set TMPDIR to one that can"


@contextmanager
def workspace(share: Share) -> Iterator[Path]:
    """A fresh private folder. Under a launcher, one that all parents of the run find by the same name.

    Raises CannotMeasureError when no folder can be written, or the parent that reports never makes one.
    """
    if not share.run_key:
        folder = _own_folder()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    elif share.reports:
        with _published(link_of(share)) as folder:
            yield folder
    else:
        yield _found(link_of(share))


def _own_folder() -> Path:
    for base in (None, *CANDIDATES):
        try:
            return Path(tempfile.mkdtemp(prefix="gpubalance-", dir=base))
        except OSError:
            continue
    raise CannotMeasureError("no folder for temporary files can be written", ANOTHER)


def link_of(share: Share) -> Path:
    """Where all parents of the run look. Where the key does not name the run alone, the launcher's pid is part of the
    name: all of them are its children.
    """
    name = f"gpubalance-{os.getuid()}-{share.run_key}" + ("" if share.key_is_whole else f"-{os.getppid()}")
    return Path(tempfile.gettempdir()) / "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


@contextmanager
def _published(link: Path) -> Iterator[Path]:
    """A folder of ours behind the link, both gone afterwards."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="gpubalance-", dir=link.parent))
        lock = os.open(folder / OWNER, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CannotMeasureError(f"no folder for temporary files can be written: {error.strerror}", ANOTHER) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _point(link, folder)
        yield folder
    finally:
        with suppress(OSError):
            if link.readlink() == folder:
                link.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _point(link: Path, folder: Path) -> None:
    """In one step, also over a link that a run of the same key left behind."""
    fresh = folder / "link"
    try:
        fresh.symlink_to(folder)
        fresh.replace(link)
    except OSError as error:
        raise CannotMeasureError(
            f"{link} cannot be written: {error.strerror}", "set TMPDIR to a private folder"
        ) from None


def _found(link: Path) -> Path:
    """The folder of the run that goes on now, as soon as there is one."""
    limit = time.monotonic() + FIRST_ORDER_LIMIT_S
    while time.monotonic() < limit:
        folder = _behind(link)
        if folder is not None and goes_on(folder):
            return folder
        time.sleep(POLL_S)
    raise CannotMeasureError(
        f"rank 0's parent did not show up within {FIRST_ORDER_LIMIT_S:g} s ({link})",
        "all ranks of a launcher need one TMPDIR; --nproc starts own ranks",
    )


def _behind(link: Path) -> Path | None:
    try:
        folder = link.readlink()
        owners = {link.lstat().st_uid, folder.lstat().st_uid}
    except OSError:
        return None
    if owners != {os.getuid()}:
        raise CannotMeasureError(f"{link} belongs to somebody else", "set TMPDIR to a private folder")
    return folder


def goes_on(folder: Path) -> bool:
    """True when the owner lives and its run is not over."""
    try:
        lock = os.open(folder / OWNER, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return not is_over(folder)
    else:
        return False
    finally:
        os.close(lock)

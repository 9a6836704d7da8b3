"""Where the record of a command goes: to the place that was asked for, else into the state folder."""

from __future__ import annotations

from pathlib import Path

from gpubalance.cli.entry import complain
from gpubalance.record.file import save_text


def save_record(text: str, asked: str | None, folder: Path | None, name: str) -> tuple[str | None, bool]:
    """Where it was saved, and whether a place that was asked for could not be written. Without that place it is
    `name` in `folder`, where there is such a folder or one can be made.
    """
    path = Path(asked) if asked is not None else _default_path(folder, name)
    if path is None:
        return None, False
    try:
        save_text(path, text)
    except OSError as error:
        complain(f"the record could not be saved to {path}: {error.strerror}", None)
        return None, asked is not None
    return str(path), False


def _default_path(folder: Path | None, name: str) -> Path | None:
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / name

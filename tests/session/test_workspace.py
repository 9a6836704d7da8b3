"""The folder that a run's processes share."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from gpubalance.errors import CannotMeasureError
from gpubalance.launch.launcher_env import Share
from gpubalance.session import workspace as module
from gpubalance.session.workspace import workspace

OWN = Share("own")
FIRST, SECOND = (Share("torchrun", rank, 2, "job/7:x y-29500-0") for rank in (0, 1))


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary files go here, whatever the environment says."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_run_has_a_folder_of_its_own_that_is_private_and_gone_afterwards(scratch: Path) -> None:
    with workspace(OWN) as one, workspace(OWN) as other:
        assert one != other
        assert one.parent == other.parent == scratch
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
        (one / "log").write_text("text")
    assert list(scratch.iterdir()) == []


def test_the_folder_is_gone_after_an_error_too(scratch: Path) -> None:
    with pytest.raises(ValueError, match="odd"), workspace(OWN):
        raise ValueError("odd")
    assert list(scratch.iterdir()) == []


def test_where_temporary_files_cannot_be_written_another_place_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_memory = tmp_path / "shm"
    shared_memory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    monkeypatch.setattr(module, "CANDIDATES", (str(tmp_path / "missing too"), str(shared_memory)))
    with workspace(OWN) as folder:
        assert folder.parent == shared_memory
    assert list(shared_memory.iterdir()) == []


def test_where_nothing_can_be_written_nothing_can_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    monkeypatch.setattr(module, "CANDIDATES", (str(tmp_path / "missing too"),))
    with pytest.raises(CannotMeasureError, match="no folder for temporary files") as raised, workspace(OWN):
        pass
    assert raised.value.next_step == "set TMPDIR to one that can"


def test_all_parents_of_a_launcher_find_the_same_folder(scratch: Path) -> None:
    with workspace(FIRST) as one, workspace(SECOND) as other:
        assert one == other
        assert one.parent == scratch
        assert stat.S_IMODE(one.stat().st_mode) == 0o700


def test_a_run_key_cannot_lead_out_of_the_place_for_temporary_files(scratch: Path) -> None:
    with workspace(Share("torchrun", 0, 2, "../../etc/job-0")) as folder:
        assert folder.parent == scratch
        assert "/" not in folder.name


def test_another_run_of_the_same_launcher_has_another_folder() -> None:
    with workspace(FIRST) as one, workspace(Share("torchrun", 0, 2, "job-29500-1")) as other:
        assert one != other


def test_only_the_parent_that_reports_removes_the_shared_folder(scratch: Path) -> None:
    with workspace(SECOND) as folder:
        pass
    assert folder.exists()
    with workspace(FIRST):
        pass
    assert list(scratch.iterdir()) == []


def test_a_folder_of_somebody_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)  # what is made now belongs to another user
    with pytest.raises(CannotMeasureError, match="belongs to somebody else") as raised, workspace(FIRST):
        pass
    assert raised.value.next_step == "set TMPDIR to a private folder"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a link away")
def test_a_link_of_somebody_else_to_a_folder_of_ours_is_refused(tmp_path: Path) -> None:
    with workspace(SECOND) as folder:
        pass
    folder.rmdir()
    ours = tmp_path / "ours"
    ours.mkdir()
    folder.symlink_to(ours)
    os.chown(folder, 12345, 12345, follow_symlinks=False)
    with pytest.raises(CannotMeasureError, match="belongs to somebody else"), workspace(FIRST):
        pass
    assert ours.exists()


def test_a_file_in_the_place_of_the_folder_is_a_sentence(scratch: Path) -> None:
    with workspace(SECOND) as folder:
        pass
    folder.rmdir()
    folder.touch()
    with pytest.raises(CannotMeasureError, match="File exists"), workspace(FIRST):
        pass


def test_a_shared_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(CannotMeasureError, match="No such file or directory"), workspace(FIRST):
        pass

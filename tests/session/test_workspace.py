"""The folder that a run's processes share."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from pathlib import Path

import pytest

from gpubalance.errors import CannotMeasureError
from gpubalance.launch.launcher_env import Share
from gpubalance.session import workspace as module
from gpubalance.session.share import Orders
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
    with workspace(FIRST) as one:
        with workspace(SECOND) as other:
            assert one == other
        assert one.parent == scratch
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
    assert list(scratch.iterdir()) == []


def test_a_parent_waits_for_the_one_that_reports() -> None:
    found: list[Path] = []

    def other() -> None:
        with workspace(SECOND) as folder:
            found.append(folder)

    waiting = threading.Thread(target=other)
    waiting.start()
    with workspace(FIRST) as folder:
        waiting.join(timeout=20)
        assert found == [folder]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent that does not report looks once."""
    monkeypatch.setattr(module, "FIRST_ORDER_LIMIT_S", 0.01)


def refused() -> CannotMeasureError:
    with pytest.raises(CannotMeasureError) as caught, workspace(SECOND):
        pass
    return caught.value


@pytest.mark.usefixtures("impatient")
def test_where_nobody_reports_the_others_say_so() -> None:
    error = refused()
    assert error.message.startswith("rank 0's parent did not show up within 0.01 s")
    assert "TMPDIR" in str(error.next_step)


@pytest.mark.usefixtures("impatient")
def test_a_run_that_is_over_is_not_taken_for_the_next_one() -> None:
    with workspace(FIRST) as folder:
        Orders(folder, FIRST).end()
        assert "did not show up" in refused().message


@pytest.mark.usefixtures("impatient")
def test_what_a_killed_run_left_behind_is_not_taken_and_the_next_run_replaces_it(scratch: Path) -> None:
    left = scratch / "gpubalance-left"
    left.mkdir()
    (left / module.OWNER).touch()
    module.link_of(FIRST).symlink_to(left)
    assert "did not show up" in refused().message
    with workspace(FIRST) as folder, workspace(SECOND) as other:
        assert folder == other != left
    assert list(scratch.iterdir()) == [left]


def test_a_run_key_cannot_lead_out_of_the_place_for_temporary_files(scratch: Path) -> None:
    link = module.link_of(Share("torchrun", 0, 2, "../../etc/job-0"))
    assert link.parent == scratch


def test_a_key_that_names_the_run_alone_has_no_pid_in_its_name() -> None:
    assert str(os.getppid()) in module.link_of(FIRST).name
    assert module.link_of(Share("slurm", 0, 2, "slurm-7-0-0", key_is_whole=True)).name.endswith("-slurm-7-0-0")


def test_another_run_of_the_same_launcher_has_another_folder() -> None:
    with workspace(FIRST) as one, workspace(Share("torchrun", 0, 2, "job-29500-1")) as other:
        assert one != other


def test_a_newer_run_of_the_same_key_keeps_its_link_when_the_older_one_ends() -> None:
    with workspace(FIRST):
        newer = workspace(FIRST)
        folder = newer.__enter__()
    with workspace(SECOND) as found:
        assert found == folder
    newer.__exit__(None, None, None)


def test_a_link_of_somebody_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with workspace(FIRST) as folder:
        link = module.link_of(FIRST)
        monkeypatch.setattr(os, "getuid", lambda: 12345)  # what is made now belongs to another user
        module.link_of(FIRST).symlink_to(folder)
        error = refused()
        module.link_of(FIRST).unlink()
    assert "belongs to somebody else" in error.message
    assert error.next_step == "set TMPDIR to a private folder"
    assert not link.is_symlink()


def test_a_folder_in_the_place_of_the_link_is_a_sentence(scratch: Path) -> None:
    module.link_of(FIRST).mkdir()
    with pytest.raises(CannotMeasureError, match="cannot be written: Is a directory"), workspace(FIRST):
        pass
    assert list(scratch.iterdir()) == [module.link_of(FIRST)]


def test_a_shared_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(CannotMeasureError, match="No such file or directory"), workspace(FIRST):
        pass

"""Dead and stuck processes that hold a GPU, in a made-up /proc."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubalance.node import holders
from tests.node.planted import plant


def process(root: Path, pid: int, state: str, *files: str, name: str = "python", flags: int = 0x400000) -> None:
    """A process of one thread with these files open."""
    plant(root, {f"proc/{pid}/stat": f"{pid} ({name}) {state} 1 {pid} {pid} 0 -1 {flags} 0 0"})
    folder = root / f"proc/{pid}/task/{pid}/fd"
    folder.mkdir(parents=True)
    for number, file in enumerate(files):
        (folder / str(number)).symlink_to(file)


def found(root: Path) -> list[tuple[int, str, list[str]]]:
    values, _ = holders.read_holders(root, pause_s=0)
    return [(each["pid"], each["state"], each["files"]) for each in values["holders"]]


def test_stuck_and_dead_processes_with_a_gpu_are_named(tmp_path: Path) -> None:
    process(tmp_path, 10, "D", "/dev/nvidia0", "/dev/nvidiactl", "/dev/null")
    process(tmp_path, 11, "Z", "/dev/nvidia1")
    process(tmp_path, 12, "S", "/dev/nvidia0")
    process(tmp_path, 13, "R", "/dev/nvidia0")
    process(tmp_path, 14, "D", "/var/log/syslog")
    process(tmp_path, 15, "Z")
    assert found(tmp_path) == [(10, "D", ["/dev/nvidia0", "/dev/nvidiactl"]), (11, "Z", ["/dev/nvidia1"])]


def test_a_killed_process_keeps_its_files_in_a_thread_that_is_stuck(tmp_path: Path) -> None:
    process(tmp_path, 20, "Z")
    folder = tmp_path / "proc/20/task/21/fd"
    folder.mkdir(parents=True)
    (folder / "3").symlink_to("/dev/nvidia2")
    assert found(tmp_path) == [(20, "Z", ["/dev/nvidia2"])]


def test_a_name_may_hold_blanks_and_brackets(tmp_path: Path) -> None:
    process(tmp_path, 30, "D", "/dev/nvidia0", name="a) S (b c")
    values, _ = holders.read_holders(tmp_path, pause_s=0)
    assert [(each["name"], each["state"]) for each in values["holders"]] == [("a) S (b c", "D")]


def test_threads_of_the_kernel_do_not_count(tmp_path: Path) -> None:
    process(tmp_path, 40, "D", "/dev/nvidia0", flags=0x200000 | 0x40)
    assert found(tmp_path) == []


def test_one_who_was_stuck_only_for_a_moment_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(tmp_path, 50, "D", "/dev/nvidia0")

    def runs_again(_: float) -> None:
        plant(tmp_path, {"proc/50/stat": "50 (python) S 1 50 50 0 -1 0 0 0"})

    monkeypatch.setattr(holders.time, "sleep", runs_again)
    assert holders.read_holders(tmp_path) == ({"holders": []}, {})


def test_files_that_may_not_be_seen_leave_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(tmp_path, 60, "D", "/dev/nvidia0")

    def refuse(_: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert holders.read_holders(tmp_path, pause_s=0) == ({"holders": []}, {"holders": "NO_PERMISSION"})


def test_without_a_proc_there_are_none(tmp_path: Path) -> None:
    assert holders.read_holders(tmp_path) == ({"holders": []}, {})

"""Saved runs: whole or not there, and a damaged one is one sentence and never a traceback."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.errors import UsageError
from gpubalance.record import file as files
from gpubalance.record.file import check_writable, load_run, save_text, state_folder
from gpubalance.record.run import SCHEMA_VERSION
from gpubalance.reports.document import document_text
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady
from tests.support import command_environment

RUN = make_run([make_attempt(steady([100.0, 100.0], blocks=2))], solo=[make_solo(0, 90.0), make_solo(1, 90.0)])
DOCUMENT = document_text(RUN, judge(RUN))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.json"


def refusal(path: Path) -> str:
    """Why the file is no run: one sentence that names it."""
    with pytest.raises(UsageError) as raised:
        load_run(path)
    message = raised.value.message
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(f"{path} ")


def refusal_of(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return refusal(path)


def changed(change: Callable[[Any], Any]) -> str:
    """The document with something else in it."""
    document = json.loads(DOCUMENT)
    change(document)
    return json.dumps(document)


def test_a_saved_run_is_the_run_that_is_loaded(path: Path) -> None:
    save_text(path, DOCUMENT)
    assert load_run(path) == RUN


def test_a_file_that_is_not_there_is_said_to_be_missing(path: Path) -> None:
    assert refusal(path) == "cannot be read: No such file or directory"


def test_a_folder_is_no_run(tmp_path: Path) -> None:
    assert refusal(tmp_path) == "cannot be read: Is a directory"


def test_a_path_through_a_file_is_no_run(path: Path) -> None:
    path.touch()
    assert refusal(path / "run.json") == "cannot be read: Not a directory"


@pytest.mark.parametrize(
    "content",
    [
        "",
        " ",
        "PASS  node can train evenly",
        DOCUMENT[: len(DOCUMENT) // 2],
        DOCUMENT + DOCUMENT,
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 5000,
        DOCUMENT.encode("utf-16"),
        b"\xff\xfe\x00",
        b"\x00" * 100,
        b"\x1f\x8b\x08\x00 a gzip",
        "\ufeff" + DOCUMENT,
    ],
    ids=lambda content: repr(content[:12]),
)
def test_a_file_that_is_not_json_is_said_to_be_none(path: Path, content: str | bytes) -> None:
    assert refusal_of(path, content).startswith("is not JSON: ")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_know_are_not_read(path: Path, number: str) -> None:
    content = DOCUMENT.replace('"duration_s":30.0', f'"duration_s":{number}')
    assert content != DOCUMENT
    assert refusal_of(path, content) == f"is not JSON: {number} is no number of JSON"


def test_a_number_beyond_all_bounds_is_not_read(path: Path) -> None:
    content = DOCUMENT.replace('"duration_s":30.0', '"duration_s":1e999')
    assert refusal_of(path, content) == "is damaged: run.duration_s: Input should be a finite number"


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ('{"schema_version":1', '{"schema_version":1,"schema_version":1', "schema_version"),
        ('"duration_s":30.0', '"duration_s":30.0,"duration_s":31.0', "duration_s"),
    ],
)
def test_a_key_that_stands_twice_is_not_read(path: Path, before: str, after: str, key: str) -> None:
    content = DOCUMENT.replace(before, after, 1)
    assert refusal_of(path, content) == f"is not JSON: key '{key}' stands twice in one object"


@pytest.mark.parametrize("content", ["[]", "7", "null", '"run"', "true"])
def test_json_that_is_no_object_is_no_run(path: Path, content: str) -> None:
    assert refusal_of(path, content) == "is not a gpubalance run"


@pytest.mark.parametrize(
    "content", ["{}", '{"a": 1}', '{"schema_version": "1"}', '{"schema_version": true}', '{"schema_version": null}']
)
def test_json_of_somebody_else_is_no_run(path: Path, content: str) -> None:
    assert refusal_of(path, content) == "is not a gpubalance run: it has no schema_version"


def test_a_newer_schema_asks_for_an_update(path: Path) -> None:
    path.write_text(changed(lambda document: document.update(schema_version=SCHEMA_VERSION + 1)))
    with pytest.raises(UsageError) as raised:
        load_run(path)
    assert f"has schema {SCHEMA_VERSION + 1}, this gpubalance reads up to {SCHEMA_VERSION}" in raised.value.message
    assert raised.value.next_step == "update gpubalance"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("run"), "run: Input should be a valid dictionary or instance of Run"),
        (lambda d: d.update(run=[]), "run: Input should be a valid dictionary or instance of Run"),
        (lambda d: d["run"].pop("plan"), "run.plan: Field required"),
        (lambda d: d["run"]["node"].pop("hostname"), "run.node.hostname: Field required"),
        (lambda d: d["run"].update(extra=1), "run.extra: Extra inputs are not permitted"),
        (lambda d: d["run"].update(duration_s="long"), "run.duration_s: Input should be a valid number"),
        (lambda d: d["run"].update(duration_s=None), "run.duration_s: Input should be a valid number"),
        (lambda d: d["run"].update(kind="probe"), "run.kind: Input should be 'bench'"),
        (lambda d: d["run"]["plan"].update(backend="mpi"), "run.plan.backend: Input should be 'nccl' or 'gloo'"),
        (lambda d: d["run"]["plan"].update(devices={}), "run.plan.devices: Input should be a valid list"),
        (lambda d: d["run"].update(ddp=7), "run.ddp: Input should be a valid list"),
        (
            lambda d: d["run"]["ddp"][0]["ranks"][1]["fenced"][0]["compute_ms"].__setitem__(3, "fast"),
            "run.ddp.0.ranks.1.fenced.0.compute_ms.3: Input should be a valid number",
        ),
        (lambda d: d["run"]["plan"].update(devices=[]), "plan.devices is empty"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_by_its_place(path: Path, change: Callable[[Any], Any], words: str) -> None:
    assert refusal_of(path, changed(change)).startswith(f"is damaged: {words}")


def test_a_judgement_of_any_kind_does_not_matter_because_the_run_is_judged_again(path: Path) -> None:
    path.write_text(changed(lambda document: document.update(judgement="unknown")))
    assert load_run(path) == RUN


def test_a_file_larger_than_any_run_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_text(path, DOCUMENT)
    monkeypatch.setattr(files, "LARGEST_BYTES", len(DOCUMENT.encode()))
    assert load_run(path) == RUN
    monkeypatch.setattr(files, "LARGEST_BYTES", len(DOCUMENT.encode()) - 1)
    assert refusal(path) == f"has more than {len(DOCUMENT.encode()) - 1} bytes, no run is so large"


def test_a_file_without_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_BYTES", 1000)
    assert refusal(Path("/dev/zero")) == "has more than 1000 bytes, no run is so large"


def test_a_run_is_read_from_a_pipe_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(DOCUMENT,))
    writer.start()
    assert load_run(pipe) == RUN
    writer.join()


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o027, 0o640), (0o002, 0o644)])
def test_permissions_follow_the_umask(path: Path, mask: int, mode: int) -> None:
    with umask(mask):
        save_text(path, "text")
        assert os.umask(mask) == mask
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_what_was_there_is_replaced_and_nothing_else_is_left(path: Path) -> None:
    path.write_text("old and much longer than what comes next")
    save_text(path, "neu: ü")
    assert path.read_bytes() == "neu: ü".encode()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_file_whole_and_nothing_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    path.write_text("old")
    owner = os if broken == "fsync" else Path
    monkeypatch.setattr(owner, broken, fail)
    with pytest.raises(OSError, match="No space left on device"):
        save_text(path, "new")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


FULL = """
import resource, sys
from pathlib import Path
from gpubalance.record.file import save_text
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    save_text(Path(sys.argv[1]), "x" * 100_000)
except OSError as error:
    print("refused", error.errno)
"""


def test_a_disk_that_takes_only_a_part_leaves_the_old_file_whole(path: Path) -> None:
    path.write_text("old")
    command = [sys.executable, "-c", FULL, str(path)]
    shown = subprocess.run(command, env=command_environment(), capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("refused")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_an_interruption_leaves_nothing_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_text(path, "new")
    assert list(path.parent.iterdir()) == []


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    save_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_name_as_long_as_a_file_system_allows_can_be_saved(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250 + ".json")
    check_writable(path)
    save_text(path, "text")
    assert path.read_text() == "text"


def test_a_place_that_can_be_written_is_accepted_and_left_as_it_is(path: Path) -> None:
    check_writable(path)
    assert list(path.parent.iterdir()) == []
    path.write_text("old")
    check_writable(path)
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("", "is a folder"),
        ("missing/run.json", "cannot be written: No such file or directory"),
        ("file/run.json", "cannot be written: Not a directory"),
        ("x" * 300, "cannot be written: File name too long"),
        ("pipe", "is not a regular file"),
        ("/dev/null", "is not a regular file"),
        ("/proc/run.json", "cannot be written: "),
    ],
)
def test_a_place_that_cannot_be_written_is_wrong_use_and_is_named(tmp_path: Path, place: str, words: str) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / place
    with pytest.raises(UsageError) as raised:
        check_writable(path)
    assert raised.value.message.startswith(f"--out {path} {words}")
    for option, named in (("--save", f"--save {path} {words}"), ("--report html=", f"--report html={path} {words}")):
        with pytest.raises(UsageError) as raised:
            check_writable(path, option)
        assert raised.value.message.startswith(named)


def test_a_loop_of_links_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert refusal(tmp_path / "a") == "cannot be read: Too many levels of symbolic links"


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/me"}, "/state/gpubalance/runs"),
        ({"XDG_STATE_HOME": "/state"}, "/state/gpubalance/runs"),
        ({"HOME": "/home/me"}, "/home/me/.local/state/gpubalance/runs"),
        ({"XDG_STATE_HOME": "", "HOME": "/home/me"}, "/home/me/.local/state/gpubalance/runs"),
        ({"XDG_STATE_HOME": "state", "HOME": "/home/me"}, "/home/me/.local/state/gpubalance/runs"),
        ({"XDG_STATE_HOME": "state"}, None),
        ({"HOME": "me"}, None),
        ({"HOME": ""}, None),
        ({}, None),
    ],
)
def test_runs_are_kept_in_the_users_state_folder_if_there_is_one(
    environment: dict[str, str], folder: str | None
) -> None:
    assert state_folder(environment) == (Path(folder) if folder else None)

"""Whatever happens to the parent, nobody it started is alive ten seconds later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from gpubalance.record.file import load_run
from gpubalance.testing.profiles import h200_node
from tests.support import (
    alive,
    children_of,
    command_environment,
    eventually,
    scripted_bench_command,
    write_script,
)

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]


Running = tuple[subprocess.Popen[bytes], list[psutil.Process]]


def ignoring(signal_name: str, command: list[str]) -> list[str]:
    """The command as a script's background job or nohup would start it: with a signal ignored."""
    return ["sh", "-c", f'trap "" {signal_name}; exec "$@"', "sh", *command]


@contextmanager
def running_bench(folder: Path, *, ignored: bool, out: Path) -> Iterator[Running]:
    """A bench whose ranks have measured three blocks and now sit still, with everybody it started."""
    ready = [folder / f"ready {rank}" for rank in range(2)]
    script = {
        str(rank): [["phase", "ddp"], ["blocks", 3, 100.0], ["touch", str(path)], ["sleep"]]
        for rank, path in enumerate(ready)
    }
    profile = folder / "profile.json"
    profile.write_text(json.dumps(h200_node()))
    environment = {**command_environment(XDG_STATE_HOME=str(folder)), **write_script(folder, script)}
    command = scripted_bench_command("--workload", "ddp", "--out", str(out), stand_in=profile)
    process = subprocess.Popen(
        ignoring("INT", command) if ignored else command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        eventually(lambda: all(path.exists() for path in ready))
        everybody = eventually(lambda: (found := children_of(process.pid)) and len(found) >= 3 and found)
        yield process, everybody
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("ignored", [False, True], ids=["started normally", "started with SIGINT ignored"])
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_no_child_outlives_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, ignored: bool
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # what is killed leaves its folder behind
    with running_bench(tmp_path, ignored=ignored, out=tmp_path / "run.json") as (process, everybody):
        os.kill(process.pid, number)
        eventually(lambda: process.poll() is not None, seconds=10)
        eventually(lambda: not alive(everybody), seconds=10)
        expected = -number if number == signal.SIGKILL else 128 + number
        assert process.returncode == expected


def test_an_interrupted_run_keeps_what_was_measured_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    with running_bench(tmp_path, ignored=False, out=out) as (process, _):
        os.kill(process.pid, signal.SIGTERM)
        stdout, _ = process.communicate(timeout=20)
    run = load_run(out)
    assert run.interrupted_by == signal.SIGTERM
    assert [len(rank.fenced) for rank in run.ddp[0].ranks] == [3, 3]
    assert b"interrupted by signal 15" in stdout


def test_hangup_is_ignored_under_nohup(tmp_path: Path) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    script = {"*": [["phase", "ddp"], ["touch", str(ready)], ["wait", str(go)], ["exit", 0]]}
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(h200_node()))
    environment = {**command_environment(XDG_STATE_HOME=str(tmp_path)), **write_script(tmp_path, script)}
    process = subprocess.Popen(
        ignoring("HUP", scripted_bench_command("--workload", "ddp", stand_in=profile)),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    eventually(ready.exists)
    os.kill(process.pid, signal.SIGHUP)
    go.touch()
    assert process.wait(timeout=30) == 3


def test_the_work_folder_is_gone_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with running_bench(tmp_path, ignored=False, out=tmp_path / "run.json") as (process, _):
        assert [path.name for path in scratch.iterdir() if path.name.startswith("gpubalance-")]
        os.kill(process.pid, signal.SIGINT)
        process.wait(timeout=20)
    assert [path.name for path in scratch.iterdir() if path.name.startswith("gpubalance-")] == []

"""Hangs and failures of real ranks over gloo: what is said of them, how soon, and that nobody is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from gpubalance.record.file import load_run
from tests.support import COMMAND, alive, children_of, command_environment, eventually, run_cli

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores"),
]

SMALL = ("bench", "--device", "cpu", "--nproc", "2", "--batch", "64", "--workload", "ddp")
STALL_S = 12.0
"""The first DDP of a process imports for 5 s without a word, longer on a busy machine."""


def test_a_rank_stopped_in_the_middle_is_named_with_its_state_soon_and_nobody_is_left(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    process = subprocess.Popen(
        [*COMMAND, *SMALL, "--stall-timeout", f"{STALL_S:g}s", "--out", str(out)],
        env=command_environment(TMPDIR=str(tmp_path)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    log = eventually(lambda: next(tmp_path.glob("gpubalance-*/ranks-0-rank1.jsonl"), None), seconds=60)
    eventually(lambda: log.read_bytes().count(b'"event": "block"') >= 2, seconds=60)
    os.kill(json.loads(log.read_text().splitlines()[0])["pid"], signal.SIGSTOP)
    everybody = children_of(process.pid)
    stdout, stderr = process.communicate(timeout=90)
    run = load_run(out)
    cause = next(error for error in run.errors if error.first_cause)
    assert process.returncode == 3
    assert (cause.rank, cause.kind, cause.phase) == (1, "stalled", "ddp")
    assert cause.message.endswith(" of ddp: its process is stopped (state T, by SIGSTOP)") or cause.message.endswith(
        " of ddp, where all ranks are: its process is stopped (state T, by SIGSTOP)"
    )
    assert run.hang is not None
    assert [(rank.rank, rank.named, rank.state) for rank in run.hang.ranks][1] == (1, True, "T")
    assert "workloads/ddp.py" in (run.hang.ranks[0].stack or "")
    assert run.hang.gathered_in_s < 5
    assert run.bisection is not None
    assert run.bisection.left_out == "the process of rank 1 was stopped from outside"
    assert b"(state T, by SIGSTOP)" in b" ".join(stdout.split()), stderr
    eventually(lambda: not alive(everybody), seconds=10)


def test_a_wrong_interface_is_found_in_fresh_processes_and_fails(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    environment = command_environment(GLOO_SOCKET_IFNAME="nonexistent0", XDG_STATE_HOME=str(tmp_path))
    done = run_cli(*SMALL, "--out", str(out), env=environment)
    run = load_run(out)
    assert done.returncode == 1, done.stdout
    assert run.bisection is not None
    assert [(trial.switch, trial.outcome) for trial in run.bisection.trials] == [
        (None, "fails"),
        ("GLOO_SOCKET_IFNAME=lo", "works"),
    ]
    assert "works with GLOO_SOCKET_IFNAME=lo: the interface" in " ".join(done.stdout.split())


def test_an_interrupt_during_the_search_keeps_the_hang_and_leaves_nobody(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    process = subprocess.Popen(
        [*COMMAND, *SMALL, "--out", str(out)],
        env=command_environment(GLOO_SOCKET_IFNAME="nonexistent0", TMPDIR=str(tmp_path)),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: next(tmp_path.glob("gpubalance-*/ranks-1000-rank1.jsonl"), None), seconds=90)
    everybody = children_of(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    run = load_run(out)
    assert run.interrupted_by == signal.SIGINT
    assert run.bisection is not None
    assert run.bisection.left_out == "interrupted"
    eventually(lambda: not alive(everybody), seconds=10)

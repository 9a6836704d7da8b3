"""The state of a process: of real ones, and of what the kernel's files may say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubalance.launch.process_state import ProcessState, read_state
from tests.support import command_environment, eventually

LISTENER = """
import sys
from pathlib import Path
from gpubalance.child import answer_with_stacks
answer_with_stacks(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that answers with its stacks and sleeps."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENER, str(tmp_path / "stack.txt")],
        env=command_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_process_that_sleeps_and_one_that_is_stopped(listener: subprocess.Popen[bytes]) -> None:
    eventually(lambda: read_state(listener.pid).letter == "S")
    assert read_state(listener.pid).answers
    assert read_state(listener.pid).stopped_by is None
    os.kill(listener.pid, signal.SIGSTOP)
    state = eventually(lambda: (found := read_state(listener.pid)).letter == "T" and found)
    assert state.stopped_by == "SIGSTOP"
    assert read_state(listener.pid).stopped_by == "SIGSTOP"  # the news is still there for the next who asks
    os.kill(listener.pid, signal.SIGCONT)
    eventually(lambda: read_state(listener.pid).letter == "S")


def test_a_process_that_runs() -> None:
    own = read_state(os.getpid())
    assert own.letter == "R"
    assert own.missing is None


def test_a_process_that_is_no_child_of_ours_may_be_stopped_by_anything(tmp_path: Path) -> None:
    assert _planted(tmp_path, "T").stopped_by is None


def test_a_process_that_is_gone_has_no_state_but_a_reason(listener: subprocess.Popen[bytes]) -> None:
    listener.kill()
    listener.wait()
    state = read_state(listener.pid)
    assert state.letter is None
    assert state.missing


def _planted(proc: Path, letter: str, name: str = "python", wchan: str | None = "0", tracer: int = 0) -> ProcessState:
    folder = proc / "1"
    folder.mkdir()
    (folder / "stat").write_text(f"1 ({name}) {letter} 1 1 1 0")
    (folder / "status").write_text(f"Name:\t{name}\nTracerPid:\t{tracer}\nSigCgt:\t0000000000000200\n")
    if wchan is not None:
        (folder / "wchan").write_text(wchan)
    return read_state(1, proc)


def test_a_name_with_brackets_hides_no_state(tmp_path: Path) -> None:
    assert _planted(tmp_path, "D", name="a) S (b").letter == "D"


def test_what_a_process_waits_in_and_who_traces_it(tmp_path: Path) -> None:
    state = _planted(tmp_path, "t", wchan="ptrace_stop\n", tracer=4711)
    assert (state.waits_in, state.traced_by, state.answers) == ("ptrace_stop", 4711, True)


@pytest.mark.parametrize("wchan", ["0", "", None])
def test_kernels_that_do_not_tell_what_a_process_waits_in(tmp_path: Path, wchan: str | None) -> None:
    assert _planted(tmp_path, "D", wchan=wchan).waits_in is None

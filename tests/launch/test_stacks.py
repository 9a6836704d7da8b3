"""Stacks of processes that do not come back by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from gpubalance.launch.stacks import ask, await_answers, main_thread_at
from tests.support import command_environment, eventually

IN_C = """
import ctypes, sys, threading
from pathlib import Path
from gpubalance.child import answer_with_stacks
answer_with_stacks(Path(sys.argv[1]))
threading.Thread(target=threading.Event().wait, daemon=True).start()
def stuck(pause):
    print("ready", flush=True)
    pause()
stuck(ctypes.PyDLL(None).pause)  # keeps the interpreter's lock, as a driver's call may
"""


def test_a_process_inside_a_call_that_keeps_the_interpreters_lock_answers(tmp_path: Path) -> None:
    path = tmp_path / "stack.txt"
    with subprocess.Popen(
        [sys.executable, "-c", IN_C, str(path)], env=command_environment(), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING)  # in pause()
        assert ask({3: process.pid}) == {3}
        answers = await_answers({3: path}, time.monotonic() + 20)
        process.kill()
    assert "in stuck" in answers[3]
    assert "in wait" in answers[3]  # the other thread
    assert (main_thread_at(answers[3]) or "").startswith("stuck (<string>:")


def test_who_does_not_answer_is_waited_for_until_the_end_and_no_longer(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        os.kill(process.pid, signal.SIGSTOP)
        asked = ask({0: process.pid})
        answers = await_answers({0: tmp_path / "none"}, time.monotonic() + 0.3)
        process.kill()
    assert asked == {0}
    assert answers == {}


def test_a_process_that_is_gone_cannot_be_asked() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        assert ask({0: process.pid}) == set()


DUMP = """Thread 0x00007f0000000001 [pt_watchdog] (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f0000000002 (most recent call first):
  File "/site/torch/distributed/distributed_c10d.py", line 2824 in all_reduce
  File "/site/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/site/gpubalance/workloads/ddp.py", line 53 in fence
  File "/site/gpubalance/workloads/timed_loop.py", line 95 in fenced_block
"""


def test_the_main_thread_is_the_last_and_its_innermost_call_of_ours_is_named_too() -> None:
    assert main_thread_at(DUMP) == (
        "all_reduce (distributed/distributed_c10d.py:2824), called from fence (workloads/ddp.py:53)"
    )


def test_a_call_of_ours_that_is_the_innermost_is_named_once() -> None:
    ours = (
        DUMP.split("\n  File", maxsplit=2)[0]
        + '\n\nThread 0x1 (most recent call first):\n  File "/a/gpubalance/b.py", line 7 in f\n'
    )
    assert main_thread_at(ours) == "f (gpubalance/b.py:7)"


def test_a_dump_without_calls_says_nothing() -> None:
    assert main_thread_at("") is None
    assert main_thread_at("Thread 0x1 (most recent call first):\n  <no Python frame>\n") is None

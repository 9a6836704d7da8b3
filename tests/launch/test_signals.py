"""Signals become one exception, whatever the process was started with. In processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.support import command_environment

HANDLED = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
EACH = pytest.mark.parametrize("number", HANDLED, ids=lambda number: number.name)

WAITING = """
import signal, sys
from gpubalance.errors import Interrupted
from gpubalance.launch.signals import HANDLED, interruptible

def say(text):
    print(text, flush=True)

before = {number: signal.getsignal(number) for number in HANDLED}
try:
    with interruptible():
        try:
            say("ready")
            while True:
                sys.stdin.readline()
                say("alive")
        except Interrupted as interrupted:
            say(f"interrupted {interrupted.signal_number}")
            sys.stdin.readline()
            say("cleaned up")
            raise
except Interrupted as interrupted:
    say(f"restored {before == {number: signal.getsignal(number) for number in HANDLED}}")
    sys.exit(int(interrupted.exit_code))
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that waits for signals, with some of them ignored before."""
    processes: list[subprocess.Popen[str]] = []

    def begin(*ignored: signal.Signals) -> subprocess.Popen[str]:
        traps = "".join(f'trap "" {number.name.removeprefix("SIG")}; ' for number in ignored)
        process = subprocess.Popen(
            ["sh", "-c", f'{traps}exec "$@"', "sh", sys.executable, "-c", WAITING],
            env=command_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        assert heard(process) == "ready"
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def nudge(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@EACH
def test_a_signal_is_an_exception_that_knows_its_number(start: Start, number: signal.Signals) -> None:
    process = start()
    process.send_signal(number)
    assert heard(process) == f"interrupted {int(number)}"
    nudge(process)
    assert heard(process) == "cleaned up"
    assert heard(process) == "restored True"
    assert process.wait(timeout=20) == 128 + number


@EACH
@pytest.mark.parametrize("second", HANDLED, ids=lambda number: f"then {number.name}")
def test_a_second_signal_does_not_disturb_the_end(start: Start, number: signal.Signals, second: signal.Signals) -> None:
    process = start()
    process.send_signal(number)
    assert heard(process) == f"interrupted {int(number)}"
    process.send_signal(second)
    nudge(process)
    assert heard(process) == "cleaned up"
    assert heard(process) == "restored True"
    assert process.wait(timeout=20) == 128 + number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_background_job_of_a_script_is_interrupted_all_the_same(start: Start, number: signal.Signals) -> None:
    process = start(number)
    process.send_signal(number)
    assert heard(process) == f"interrupted {int(number)}"
    nudge(process)
    assert heard(process) == "cleaned up"
    assert heard(process) == "restored True"


def test_a_hangup_stays_ignored_under_nohup_and_other_signals_do_not(start: Start) -> None:
    process = start(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    nudge(process)
    assert heard(process) == "alive"
    process.send_signal(signal.SIGTERM)
    assert heard(process) == "interrupted 15"

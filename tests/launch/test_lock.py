"""One measurement at a time, between real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpubalance.errors import BusyError
from gpubalance.launch import lock
from gpubalance.launch.lock import MeasuringLock
from tests.support import ROOT, eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")

HOLDER = """
import sys
from gpubalance.launch import lock
lock._NAME = "\\0" + sys.argv[1]
held = lock.MeasuringLock()
held.acquire(force=False)
print("held", flush=True)
for order in sys.stdin:
    held.release()
    print("released", flush=True)
"""


@pytest.fixture(autouse=True)
def own_name(monkeypatch: pytest.MonkeyPatch) -> str:
    """A lock of this test alone, so that a real measurement on this machine disturbs nobody."""
    name = f"gpubalance-test-{os.getpid()}"
    monkeypatch.setattr(lock, "_NAME", f"\0{name}")
    return name


@pytest.fixture
def mine() -> Iterator[MeasuringLock]:
    """A lock of this process, given back at the end."""
    own = MeasuringLock()
    yield own
    own.release()


@contextmanager
def another_holds_it(name: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            yield holder
        finally:
            holder.kill()


def acquired(own: MeasuringLock) -> bool:
    try:
        own.acquire(force=False)
    except BusyError:
        return False
    return True


def test_a_second_process_is_refused_and_the_holder_is_named(own_name: str, mine: MeasuringLock) -> None:
    with another_holds_it(own_name) as holder:
        with pytest.raises(BusyError) as caught:
            mine.acquire(force=False)
        assert caught.value.message == (
            f"another gpubalance (pid {holder.pid}) is measuring here; two at once would disturb each other"
        )
        assert caught.value.exit_code == 3
        assert "--force" in str(caught.value.next_step)


def test_force_measures_all_the_same_and_takes_nothing_from_the_holder(own_name: str, mine: MeasuringLock) -> None:
    with another_holds_it(own_name):
        mine.acquire(force=True)
        mine.release()
        assert not acquired(mine)


def test_a_lock_that_was_given_back_can_be_taken(own_name: str, mine: MeasuringLock) -> None:
    with another_holds_it(own_name) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write("release\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "released\n"
        assert acquired(mine)


def test_a_lock_of_a_killed_process_is_free(own_name: str, mine: MeasuringLock) -> None:
    with another_holds_it(own_name) as holder:
        assert not acquired(mine)
        holder.kill()
        holder.wait()
        assert eventually(lambda: acquired(mine))


def test_a_lock_can_be_taken_again_after_it_was_given_back(mine: MeasuringLock) -> None:
    for _ in range(3):
        mine.acquire(force=False)
        mine.release()
    assert acquired(mine)


def test_giving_back_what_is_not_held_does_nothing(own_name: str, mine: MeasuringLock) -> None:
    mine.release()
    with another_holds_it(own_name):
        mine.release()
        assert not acquired(mine)


def test_a_second_lock_of_the_same_process_is_refused_too(mine: MeasuringLock) -> None:
    mine.acquire(force=False)
    with pytest.raises(BusyError, match="pid unknown"):
        MeasuringLock().acquire(force=False)


def test_force_tells_who_else_measures(own_name: str, mine: MeasuringLock) -> None:
    assert mine.acquire(force=True) is None
    mine.release()
    with another_holds_it(own_name) as holder:
        assert mine.acquire(force=True) == f"another gpubalance (pid {holder.pid})"


def test_the_holder_is_named_however_often_somebody_was_refused(own_name: str, mine: MeasuringLock) -> None:
    with another_holds_it(own_name) as holder:
        for _ in range(200):
            with pytest.raises(BusyError, match=f"pid {holder.pid}"):
                mine.acquire(force=False)


def test_a_process_that_its_holder_left_behind_holds_nothing(own_name: str, mine: MeasuringLock) -> None:
    """Children of a killed run may live for a moment; its lock does not live in them."""
    code = HOLDER.replace("import sys\n", "import subprocess, sys\n").replace(
        'print("held", flush=True)',
        'child = subprocess.Popen(["sleep", "60"], close_fds=False)\nprint("held", child.pid, flush=True)',
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code, own_name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline().split()[1])
        holder.kill()
        holder.wait()
        try:
            assert Path(f"/proc/{child}").exists()
            assert eventually(lambda: acquired(mine))
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_another_user_with_another_tmpdir_is_refused(own_name: str, mine: MeasuringLock, tmp_path: Path) -> None:
    """Whoever holds it, and whatever may be written where."""
    mine.acquire(force=False)
    code = f"""
import os
from gpubalance.errors import BusyError
from gpubalance.launch import lock
os.setgid(54321)
os.setuid(54321)
lock._NAME = "\\0{own_name}"
try:
    lock.MeasuringLock().acquire(force=False)
except BusyError as error:
    print(error.message)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "nowhere")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert f"another gpubalance (pid {os.getpid()}) is measuring here" in done.stdout, done.stderr

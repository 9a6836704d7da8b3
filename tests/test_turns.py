import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support import eventually
from tests.turns import turn

HOLD = """
import sys
from pathlib import Path
from tests.turns import turn
with turn(Path(sys.argv[1]), Path(sys.argv[2]), alone=sys.argv[3] == "alone"):
    print("in", flush=True)
    sys.stdin.read()
"""


class Other:
    """Another process that takes a turn."""

    def __init__(self, folder: Path, how: str) -> None:
        command = [sys.executable, "-c", HOLD, str(folder / "door"), str(folder / "room"), how]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.inside = False
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        assert self._process.stdout is not None
        self.inside = self._process.stdout.readline() == b"in\n"

    def waits_in_line(self) -> bool:
        """Whether the kernel lists this process as waiting for a lock."""
        pid = str(self._process.pid)
        return any("->" in line and pid in line.split() for line in Path("/proc/locks").read_text().splitlines())

    def leave(self) -> None:
        self._process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "door").touch()
    (tmp_path / "room").touch()
    return tmp_path


def test_many_are_inside_together(folder: Path) -> None:
    others = [Other(folder, "together") for _ in range(2)]
    eventually(lambda: all(other.inside for other in others))
    for other in others:
        other.leave()


def test_who_wants_to_be_alone_waits_for_those_inside_and_keeps_out_those_who_come_later(folder: Path) -> None:
    first = Other(folder, "together")
    eventually(lambda: first.inside)
    alone = Other(folder, "alone")
    eventually(alone.waits_in_line)
    later = Other(folder, "together")
    eventually(later.waits_in_line)
    assert (alone.inside, later.inside) == (False, False)
    first.leave()
    eventually(lambda: alone.inside)
    assert not later.inside
    alone.leave()
    eventually(lambda: later.inside)
    later.leave()


def test_an_error_inside_ends_the_turn(folder: Path) -> None:
    with pytest.raises(ValueError, match="broken"), turn(folder / "door", folder / "room", alone=True):
        raise ValueError("broken")
    with turn(folder / "door", folder / "room", alone=True):
        pass

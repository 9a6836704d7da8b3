"""Lines that one process writes while another reads them."""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.record.rank_log import LogTail, RankLog
from tests.support import command_environment


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank.jsonl"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def written(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_an_event_is_one_line_with_its_name_its_time_and_its_values(path: Path) -> None:
    log = RankLog(path)
    log.write("hello", pid=7, text='two\nlines "and" \u00fc')
    log.write("bye")
    first, second = written(path)
    assert path.read_bytes().count(b"\n") == 2
    assert {key: first[key] for key in ("event", "pid", "text")} == {
        "event": "hello",
        "pid": 7,
        "text": 'two\nlines "and" \u00fc',
    }
    assert isinstance(first["t_s"], float)
    assert isinstance(second["t_s"], float)
    assert first["t_s"] <= second["t_s"]


def test_what_was_written_is_what_is_read(path: Path) -> None:
    log, tail = RankLog(path), LogTail(path)
    log.write("block", compute_ms=[1.5, 2.25], phase="ddp")
    (event,) = tail.read()
    assert event["event"] == "block"
    assert event["compute_ms"] == [1.5, 2.25]
    assert tail.read() == []


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_refused_and_nothing_is_written(path: Path, number: float) -> None:
    log = RankLog(path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.write("block", compute_ms=[number])
    assert path.read_bytes() == b""


def test_phases_are_begun_and_ended_by_name(path: Path) -> None:
    log = RankLog(path)
    assert log.phase == "start"
    log.begin("ddp")
    assert log.phase == "ddp"
    log.end()
    assert log.phase == "between"
    assert [(event["event"], event["phase"]) for event in written(path)] == [
        ("phase_begin", "ddp"),
        ("phase_end", "ddp"),
    ]


def test_a_fence_is_written_before_it_is_entered_and_leaving_is_only_remembered(path: Path) -> None:
    log = RankLog(path)
    assert log.where == "work"
    log.entering(41)
    assert log.where == "collective"
    log.left()
    assert log.where == "work"
    (event,) = LogTail(path).read()
    assert (event["event"], event["fence"]) == ("fence", 41)
    assert isinstance(event["t_s"], float)


def test_a_log_is_private_to_its_user(path: Path) -> None:
    RankLog(path)
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_a_second_writer_adds_to_what_is_there(path: Path) -> None:
    RankLog(path).write("hello")
    RankLog(path).write("bye")
    assert [event["event"] for event in written(path)] == ["hello", "bye"]


def test_a_log_that_does_not_exist_yet_is_empty(path: Path) -> None:
    tail = LogTail(path)
    assert tail.read() == []
    RankLog(path).write("hello")
    assert [event["event"] for event in tail.read()] == ["hello"]


def test_half_a_line_is_kept_until_its_end_arrives(path: Path) -> None:
    tail = LogTail(path)
    append(path, b'{"event": "one"}\n{"event": "t')
    assert [event["event"] for event in tail.read()] == ["one"]
    assert tail.read() == []
    append(path, b'wo"}')
    assert tail.read() == []
    append(path, b"\n")
    assert [event["event"] for event in tail.read()] == ["two"]


LINES = [b'{"event": "one", "text": "\xc3\xbc"}\n', b'{"event": "two"}\n', b'{"event": "three"}\n']


@given(st.lists(st.integers(min_value=0, max_value=sum(map(len, LINES)))))
def test_however_the_bytes_arrive_the_events_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "rank.jsonl"
    tail, data, found = LogTail(path), b"".join(LINES), []
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        append(path, data[begin:end])
        found += tail.read()
    assert [event["event"] for event in found] == ["one", "two", "three"]
    assert found[0]["text"] == "ü"


@pytest.mark.parametrize(
    "line",
    [
        b"NCCL version 2.28.9",
        b"[1, 2]",
        b"17",
        b'{"no": "event"}',
        b'{"event": "cut',
        b"\xff\xfe\x00",
        b"null",
        b'"event"',
    ],
)
def test_a_line_that_is_no_event_is_seen_and_the_next_one_is_read(path: Path, line: bytes) -> None:
    append(path, line + b'\n{"event": "next"}\n')
    unreadable, following = LogTail(path).read()
    assert unreadable["event"] == "unreadable"
    assert unreadable["text"] == line.decode(errors="replace")
    assert following["event"] == "next"


def test_only_the_beginning_of_a_long_unreadable_line_is_kept(path: Path) -> None:
    append(path, b"x" * 100_000 + b"\n")
    (event,) = LogTail(path).read()
    assert event["text"] == "x" * 200


def test_empty_lines_are_nothing(path: Path) -> None:
    append(path, b'\n\n{"event": "one"}\n\n')
    assert [event["event"] for event in LogTail(path).read()] == ["one"]


WRITER = """
import sys
from pathlib import Path
from gpubalance.record.rank_log import RankLog
log = RankLog(Path(sys.argv[1]))
for number in range(400):
    log.write("line", writer=sys.argv[2], number=number, filling=sys.argv[2] * (number * 37 % 3000))
    log.entering(number)
"""


def test_lines_of_two_processes_never_mix(path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], env=command_environment()) for name in "ab"
    ]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    events = LogTail(path).read()
    lines = [event for event in events if event["event"] == "line"]
    assert len(events) == 1600
    assert all(set(event["filling"]) <= {event["writer"]} for event in lines)
    for name in "ab":
        assert [event["number"] for event in lines if event["writer"] == name] == list(range(400))


LIMITED = """
import resource, sys
from pathlib import Path
from gpubalance.record.rank_log import RankLog
resource.setrlimit(resource.RLIMIT_FSIZE, (120, 120))
log = RankLog(Path(sys.argv[1]))
log.write("fits")
try:
    log.write("does not fit", filling="x" * 200)
except OSError as error:
    print("refused", error.errno)
"""


def test_a_line_that_fits_only_in_part_is_an_error_and_not_lost_in_silence(path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)],
        env=command_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.startswith("refused")
    assert [event["event"] for event in LogTail(path).read()] == ["fits"]


def test_a_line_that_the_system_takes_in_pieces_arrives_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, bytes(data)[:7]))
    log = RankLog(path)
    log.write("block", compute_ms=[1.0] * 20)
    log.entering(3)
    assert [event["event"] for event in LogTail(path).read()] == ["block", "fence"]

"""The last verdict of a host: whole, plain, and nothing that is damaged is believed."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gpubalance.record.file import state_folder
from gpubalance.record.history import (
    LastVerdict,
    end_of,
    last_verdict_path,
    load_last_verdicts,
    save_last_verdict,
    state_home,
)
from tests.reports.helpers import HOSTILE

LAST = LastVerdict(
    kind="bench",
    hostname="node1",
    run_id="run",
    ended_at="2026-01-01T00:00:30.000+00:00",
    verdict="warn",
    sentence="rank 1 is slow",
    exit_code=0,
    scope=None,
    record="/runs/run.json",
    gpubalance_version="0.1.0",
)


def last(**values: Any) -> LastVerdict:
    return dataclasses.replace(LAST, **values)


HOMES = {
    "XDG": ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, Path("/x/gpubalance")),
    "home": ({"HOME": "/h"}, Path("/h/.local/state/gpubalance")),
    "XDG that is not absolute": ({"XDG_STATE_HOME": "x", "HOME": "/h"}, Path("/h/.local/state/gpubalance")),
    "home that is not absolute": ({"HOME": "h"}, None),
    "neither": ({}, None),
}


@pytest.mark.parametrize(("environment", "home"), HOMES.values(), ids=HOMES.keys())
def test_the_state_folder_is_the_one_that_runs_are_saved_in(environment: dict[str, str], home: Path | None) -> None:
    assert state_home(environment) == home
    assert state_folder(environment) == (home / "runs" if home else None)


ENDS = {
    "UTC": ("2026-01-01T00:00:00+00:00", 30.5, "2026-01-01T00:00:30.500+00:00"),
    "another zone": ("2026-01-01T02:00:00+02:00", 0.0, "2026-01-01T00:00:00.000+00:00"),
    "no zone": ("2026-01-01T00:00:00", 3600.0, "2026-01-01T01:00:00.000+00:00"),
}


@pytest.mark.parametrize(("started", "duration_s", "end"), ENDS.values(), ids=ENDS.keys())
def test_when_a_run_ended(started: str, duration_s: float, end: str) -> None:
    assert end_of(started, duration_s) == end


@pytest.mark.parametrize(
    "value", [LAST, last(scope="1 of 8 GPUs", record=None), last(sentence=HOSTILE, run_id="\udcff")]
)
def test_what_is_saved_is_loaded(tmp_path: Path, value: LastVerdict) -> None:
    save_last_verdict(tmp_path, value)
    assert load_last_verdicts(tmp_path, "node1") == [value]
    last_verdict_path(tmp_path, "node1", "bench").read_bytes().decode("ascii")


def test_newest_first_and_each_kind_replaces_only_itself(tmp_path: Path) -> None:
    old = last(ended_at="2026-01-01T00:00:00+00:00", sentence="old")
    probe = last(kind="probe", ended_at="2026-01-01T00:00:20+00:00")
    for value in (old, probe, LAST):
        save_last_verdict(tmp_path, value)
    assert load_last_verdicts(tmp_path, "node1") == [LAST, probe]


def test_hosts_that_share_a_home_do_not_speak_for_each_other(tmp_path: Path) -> None:
    save_last_verdict(tmp_path, LAST)
    assert load_last_verdicts(tmp_path, "node2") == []


def test_no_folder_is_no_verdict(tmp_path: Path) -> None:
    assert load_last_verdicts(tmp_path / "none", "node1") == []


@pytest.mark.parametrize("hostname", ["../../etc/x", "a/b", ".", "", 300 * "n", "\x1b[31m"])
def test_a_hostile_hostname_stays_in_the_folder(tmp_path: Path, hostname: str) -> None:
    save_last_verdict(tmp_path, last(hostname=hostname))
    assert load_last_verdicts(tmp_path, hostname) == [last(hostname=hostname)]
    assert [path.parent for path in tmp_path.rglob("*.json")] == [tmp_path / "verdicts"]


DAMAGE: dict[str, Any] = {
    "cut": b'{"kind": "bench"',
    "empty": b"",
    "no UTF-8": b"\xff\xfe",
    "a list": [],
    "a key too many": {**dataclasses.asdict(LAST), "more": 1},
    "a key too few": {"kind": "bench"},
    "another verdict": dataclasses.asdict(last(verdict="great")),
    "another kind": dataclasses.asdict(last(kind="dream")),
    "exit code as text": dataclasses.asdict(last(exit_code="0")),
    "exit code as truth": dataclasses.asdict(last(exit_code=False)),
    "exit code out of range": dataclasses.asdict(last(exit_code=256)),
    "no time": dataclasses.asdict(last(ended_at="soon")),
    "a time without a zone": dataclasses.asdict(last(ended_at="2026-01-01T00:00:00")),
    "no sentence": dataclasses.asdict(last(sentence=None)),
    "another host": dataclasses.asdict(last(hostname="node2")),
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE.keys())
def test_what_is_damaged_is_not_believed_and_named(tmp_path: Path, content: Any) -> None:
    path = last_verdict_path(tmp_path, "node1", "bench")
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(ValueError, match=r"node1\.bench\.json"):
        load_last_verdicts(tmp_path, "node1")


def test_what_cannot_be_read_is_not_believed(tmp_path: Path) -> None:
    last_verdict_path(tmp_path, "node1", "bench").mkdir(parents=True)
    with pytest.raises(ValueError, match="cannot be read"):
        load_last_verdicts(tmp_path, "node1")


def test_of_many_that_write_at_once_one_stays_whole(tmp_path: Path) -> None:
    values = [last(sentence=f"{number} " * 2000) for number in range(16)]
    threads = [threading.Thread(target=save_last_verdict, args=(tmp_path, value)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (found,) = load_last_verdicts(tmp_path, "node1")
    assert found in values
    assert len(list((tmp_path / "verdicts").iterdir())) == 1


def test_reading_it_imports_nothing_heavy() -> None:
    heavy = "{'pydantic', 'numpy', 'pandas', 'torch'}"
    code = f"import sys, gpubalance.record.history; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"

"""`gpubalance verdict`: what the last run said, its exit code, and 3 whenever that no longer counts."""

from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from gpubalance.cli import entry
from gpubalance.cli.verdict import Answer, answer_json, answer_of, answer_text, span
from gpubalance.record.history import LastVerdict, last_verdict_path, save_last_verdict
from tests.reports.helpers import HOSTILE
from tests.support import command_environment

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
HOUR_S = 3600.0
Streams = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "gpubalance"


def keep(home: Path, ended: datetime = NOW, **values: Any) -> LastVerdict:
    base: dict[str, Any] = {
        "kind": "bench", "hostname": socket.gethostname(), "run_id": "run", "ended_at": ended.isoformat(),
        "verdict": "pass", "sentence": "node can train evenly", "exit_code": 0, "scope": None, "record": "/run.json",
        "gpubalance_version": "0.1.0",
    }  # fmt: skip
    last = LastVerdict(**{**base, **values})
    save_last_verdict(home, last)
    return last


@pytest.mark.parametrize(("verdict", "code"), [("pass", 0), ("warn", 0), ("warn", 1), ("fail", 1), ("inconclusive", 3)])
def test_the_exit_code_is_that_of_the_run(home: Path, verdict: str, code: int) -> None:
    keep(home, verdict=verdict, exit_code=code)
    answer = answer_of(6 * HOUR_S, NOW + timedelta(hours=1))
    assert answer.exit_code == code
    word = {"inconclusive": "NO VERDICT"}.get(verdict, verdict.upper())
    assert answer_text(answer).splitlines() == [
        f"{word}  node can train evenly",
        f"bench on {socket.gethostname()} ended 2026-01-01T12:00:00+00:00, 60 min ago",
        "record: /run.json",
    ]


AGES = {
    "at once": (0.0, None),
    "as old as allowed": (6 * HOUR_S, None),
    "older": (6 * HOUR_S + 1, "it is 6 h old, at most 6 h counts"),
    "much older": (80 * HOUR_S, "it is 3.3 days old, at most 6 h counts"),
    "ahead by rounding": (-1.0, None),
    "in the future": (-1.1, "it lies 1 s in the future: the clock was set back"),
    "far in the future": (-3 * HOUR_S, "it lies 3 h in the future: the clock was set back"),
}


@pytest.mark.parametrize(("age_s", "stale"), AGES.values(), ids=AGES.keys())
def test_age_from_both_sides(home: Path, age_s: float, stale: str | None) -> None:
    keep(home)
    answer = answer_of(6 * HOUR_S, NOW + timedelta(seconds=age_s))
    assert answer.stale == stale
    assert answer.exit_code == (0 if stale is None else 3)
    first = answer_text(answer).splitlines()[0]
    assert first == ("PASS  node can train evenly" if stale is None else f"NO VERDICT  {stale}")


def test_what_it_said_is_shown_although_it_is_stale(home: Path) -> None:
    keep(home, verdict="fail", sentence="rank 1 is slow", exit_code=1)
    text = answer_text(answer_of(HOUR_S, NOW + timedelta(hours=2)))
    assert "it said: FAIL  rank 1 is slow" in text


def test_the_newest_counts_and_the_older_one_is_told(home: Path) -> None:
    keep(home, NOW - timedelta(hours=1), verdict="fail", sentence="rank 1 is slow", exit_code=1)
    keep(home, kind="probe", sentence="2 GPUs healthy")
    answer = answer_of(6 * HOUR_S, NOW)
    assert answer.exit_code == 0
    assert "before it, bench said FAIL  rank 1 is slow" in answer_text(answer).splitlines()
    assert answer_of(1800, NOW).others == ()


def test_scope_is_shown(home: Path) -> None:
    keep(home, scope="1 of 8 GPUs")
    assert "about 1 of 8 GPUs" in answer_text(answer_of(HOUR_S, NOW)).splitlines()


def test_none_and_damaged_and_no_home_are_3(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no run of bench or probe" in answer_text(answer_of(HOUR_S, NOW))
    path = last_verdict_path(home, socket.gethostname(), "probe")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    damaged = answer_of(HOUR_S, NOW)
    assert (damaged.exit_code, damaged.last) == (3, None)
    assert "damaged" in answer_text(damaged)
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    nowhere = answer_of(HOUR_S, NOW)
    assert nowhere.exit_code == 3
    assert "no state folder" in answer_text(nowhere)


def test_a_verdict_of_another_host_is_none(home: Path) -> None:
    keep(home, hostname="another")
    assert answer_of(HOUR_S, NOW).exit_code == 3


def test_hostile_text_is_shown_and_not_obeyed(home: Path) -> None:
    keep(home, sentence=HOSTILE, record=HOSTILE, scope=HOSTILE)
    lines = answer_text(answer_of(HOUR_S, NOW)).splitlines()
    assert all(line.isprintable() for line in lines)
    assert len(lines) == 4
    assert json.loads(answer_json(answer_of(HOUR_S, NOW)))["last"]["sentence"] == HOSTILE


def test_as_json(home: Path) -> None:
    last = keep(home)
    fresh = json.loads(answer_json(answer_of(HOUR_S, NOW + timedelta(seconds=1.5))))
    assert fresh == {
        "schema_version": 1, "verdict": "pass", "exit_code": 0, "age_s": 1.5, "stale": None,
        "last": dataclasses.asdict(last), "others": [],
    }  # fmt: skip
    stale = json.loads(answer_json(answer_of(1.0, NOW + timedelta(hours=1))))
    assert (stale["verdict"], stale["exit_code"], stale["last"]) == (None, 3, dataclasses.asdict(last))
    none = json.loads(answer_json(Answer(None, None, "none")))
    assert (none["verdict"], none["last"], none["stale"]) == (None, None, "none")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (5400, "90 min"), (7200, "2 h"), (9000, "2.5 h"), (1e6, "11.6 days")],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_as_it_is_typed(home: Path, capsys: Streams) -> None:
    assert entry.run(["verdict"]) == 3
    keep(home, datetime.now(timezone.utc), verdict="fail", sentence="rank 1 is slow", exit_code=1)
    capsys.readouterr()
    assert entry.run(["verdict"]) == 1
    assert capsys.readouterr().out.startswith("FAIL  rank 1 is slow\n")
    assert entry.run(["verdict", "--json", "--max-age", "1h"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "fail"
    keep(home, datetime.now(timezone.utc) - timedelta(hours=7))
    assert entry.run(["verdict"]) == 3
    assert entry.run(["verdict", "--max-age", "8h"]) == 0
    assert entry.run(["verdict", "--max-age", "soon"]) == 2


def test_a_result_that_nobody_can_read_is_no_pass(home: Path) -> None:
    keep(home, datetime.now(timezone.utc))
    environment = command_environment(XDG_STATE_HOME=str(home.parent))
    command = [sys.executable, "-m", "gpubalance", "verdict"]
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], env=environment, check=False)
    assert closed.returncode == 3
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(command, env=environment, stdout=full, check=False).returncode == 3


def test_nothing_heavy_is_imported(home: Path) -> None:
    keep(home, datetime.now(timezone.utc))
    code = (
        "import sys, gpubalance.cli.app; from gpubalance.cli.verdict import verdict_command; "
        "code = verdict_command('6h', False); "  # typer imports pydantic by itself, from some version on
        "print(sorted({'torch', 'pandas', 'numpy', 'pydantic', 'rich.console'} & set(sys.modules)), code)"
    )
    environment = command_environment(XDG_STATE_HOME=str(home.parent))
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[] 0"

"""Reports on terminals of any width, and where there is none: nothing shortened, nothing that only a terminal obeys."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.verdict import judge
from gpubalance.cli.app import app
from gpubalance.cli.output import folded
from gpubalance.cli.progress import StderrDisplay
from gpubalance.record.file import load_record
from gpubalance.record.run import Run
from gpubalance.reports.document import document_text
from gpubalance.reports.fold import WIDTH
from gpubalance.reports.formats import judged
from gpubalance.reports.probe_report import probe_lines
from gpubalance.reports.terminal import report_lines
from tests.reports.helpers import HOSTILE, KEPT, named, pair
from tests.support import ROOT, command_environment, run_cli

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WIDTHS = (40, 80, 200)
PROBES = ROOT / "examples/probes"
RECORDS = {
    "h200x2-slow": KEPT["h200x2-slow"],
    "h200x2-load": PROBES / "h200x2-load.json",
    "h200x2-p2p-off": PROBES / "h200x2-p2p-off.json",
}


def lines_of(name: str, width: int = WIDTH) -> list[str]:
    """The report of a saved record, folded for this width."""
    path = RECORDS[name]
    record = load_record(path)
    judgement: Any = judged(record)
    write: Any = report_lines if isinstance(record, Run) else probe_lines
    return [line.text for line in write(record, judgement, str(path), width)]


def on_terminal(arguments: Sequence[str], columns: int, **environment: str) -> tuple[int, str]:
    """Exit code, and what `gpubalance ARGUMENTS` writes to a terminal of this width."""
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    inherited = command_environment(**{"TERM": "xterm-256color", **environment})
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "LC_ALL"):
        if name not in environment:
            inherited.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-m", "gpubalance", *arguments], env=inherited, stdin=side, stdout=side, stderr=side
    )
    os.close(side)
    written = _all_of(terminal)
    return process.wait(timeout=100), written.decode(errors="replace").replace("\r\n", "\n")


def _all_of(terminal: int) -> bytes:
    data = b""
    try:
        while chunk := os.read(terminal, 65536):
            data += chunk
    except OSError:  # how Linux says that nobody has the other side open any more
        return data
    finally:
        os.close(terminal)
    return data


NAMES = list(RECORDS)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_on_a_terminal_no_word_is_lost_or_broken_at_any_width(name: str, columns: int) -> None:
    path = str(RECORDS[name])
    _, shown = on_terminal(["report", path], columns)
    plain = COLOUR.sub("", shown)
    assert "\x1b" not in plain
    assert plain.split() == " ".join(lines_of(name, columns)).split()
    assert all(len(line) <= columns or " " not in line.strip() for line in plain.splitlines())


TERMINALS: list[tuple[str, int, dict[str, str]]] = [
    *((name, 40, {"TERM": "dumb"}) for name in NAMES),
    ("h200x2-slow", 20, {}),
    ("h200x2-slow", 80, {"LC_ALL": "C"}),
    ("h200x2-slow", 200, {"TERM": "dumb"}),
    ("h200x2-slow", 200, {"NO_COLOR": "1"}),
]


@pytest.mark.parametrize(("name", "columns", "environment"), TERMINALS, ids=str)
def test_text_is_folded_once_and_rows_of_tables_only_where_they_do_not_fit(
    name: str, columns: int, environment: dict[str, str]
) -> None:
    """By the terminal's own width, which a dumb terminal has too; nothing is folded for less than 40 columns first."""
    path = str(RECORDS[name])
    expected = [part for line in lines_of(name, max(columns, 40)) for part in folded(line, columns)]
    assert COLOUR.sub("", on_terminal(["report", path], columns, **environment)[1]).splitlines() == expected


def test_a_wide_terminal_gets_fewer_and_longer_lines() -> None:
    name = "h200x2-slow"
    assert 80 < max(map(len, lines_of(name, 200))) <= 200
    assert len(lines_of(name, 200)) < len(lines_of(name)) < len(lines_of(name, 40))


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=str
)
def test_colour_is_for_terminals_that_show_it_and_users_who_want_it(
    environment: dict[str, str], coloured: bool
) -> None:
    _, shown = on_terminal(["report", str(RECORDS["h200x2-slow"])], 80, **environment)
    assert ("\x1b[1;31mFAIL" in shown) == coloured
    assert "FAIL  rank 1 is 21.4 % slower than rank 0" in COLOUR.sub("", shown)


@pytest.mark.parametrize("columns", ["1", "40", "80", "200", "wide", ""])
@pytest.mark.parametrize("name", NAMES)
def test_off_a_terminal_the_width_changes_nothing_and_no_escape_code_is_written(name: str, columns: str) -> None:
    path = str(RECORDS[name])
    environment = command_environment(COLUMNS=columns, TERM="xterm-256color", FORCE_COLOR="1")
    done = run_cli("report", path, env=environment)
    assert done.stdout.splitlines() == lines_of(name)
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


@pytest.fixture
def strange(tmp_path: Path) -> dict[str, str]:
    """Records whose names no ASCII holds and no terminal should obey."""
    name = f"\u00dcbertragung \u4e2d\u6587 {HOSTILE}"
    run = named(pair(100.0, 108.0), name)
    document = json.loads(RECORDS["h200x2-load"].read_text())
    document["probe"]["node"].update(hostname=name, container=name, cpu_model=name)
    texts = {"run": document_text(run, judge(run)), "probe": json.dumps(document)}
    for kind, text in texts.items():
        (tmp_path / f"{kind}.json").write_text(text, encoding="utf-8")
    return {kind: str(tmp_path / f"{kind}.json") for kind in texts}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "ascii:strict"])
@pytest.mark.parametrize("kind", ["run", "probe"])
@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "file"])
def test_no_encoding_ends_a_report(strange: dict[str, str], kind: str, encoding: str, terminal: bool) -> None:
    if terminal:
        code, shown = on_terminal(["report", strange[kind]], 80, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    else:
        environment = command_environment(PYTHONIOENCODING=encoding, PYTHONUTF8="0")
        done = run_cli("report", strange[kind], env=environment, encoding="latin-1")
        code, shown = done.returncode, done.stdout + done.stderr
    text = COLOUR.sub("", shown)
    assert code in (0, 1, 3)
    assert "internal error" not in text
    assert "bertragung" in text
    assert r"\x1b[31mH200" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_c_locale_on_a_terminal_is_no_obstacle(strange: dict[str, str]) -> None:
    code, shown = on_terminal(["report", strange["run"]], 80, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert code in (0, 1, 3)
    assert "bertragung" in shown


WORDS = st.text(st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), min_size=1, max_size=50)


@given(words=st.lists(WORDS, min_size=1), indent=st.integers(0, 12), width=st.integers(1, 100))
def test_a_fold_keeps_every_word_whole_and_the_beginning_in_place(words: list[str], indent: int, width: int) -> None:
    line = " " * indent + " ".join(words)
    parts = folded(line, width)
    assert [word for part in parts for word in part.split()] == words
    assert all(len(part) <= width or len(part.split()) == 1 for part in parts)
    if indent + max(map(len, words)) <= width:
        assert all(part.startswith(" " * indent) for part in parts)


@pytest.mark.parametrize(
    ("line", "width", "parts"),
    [
        ("", 40, [""]),
        ("as wide as it", 13, ["as wide as it"]),
        ("as wide as it", 12, ["as wide as", "it"]),
        ("  - over 10 % in 24 blocks", 14, ["  - over 10 %", "  in 24 blocks"]),
        ("      GPU-11111111-aaaa", 8, ["GPU-11111111-aaaa"]),
    ],
)
def test_a_line_is_folded_below_its_own_beginning(line: str, width: int, parts: list[str]) -> None:
    assert folded(line, width) == parts


def commands(group: Any, *names: str) -> list[tuple[str, ...]]:
    """Every command, those of groups below the name of the group."""
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        found += commands(command, *names, name) if hasattr(command, "commands") else [(*names, name)]
    return found


@pytest.mark.parametrize("command", commands(typer.main.get_command(app)), ids=" ".join)
def test_the_help_of_each_command_fits_and_shows_an_example(command: tuple[str, ...]) -> None:
    done = run_cli(*command, "--help", env=command_environment(COLUMNS="80", NO_COLOR="1"))
    assert done.returncode == 0
    assert f"Example: gpubalance {' '.join(command)}" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


@pytest.mark.parametrize("columns", WIDTHS)
def test_help_works_at_any_width(columns: int) -> None:
    for arguments in ([], ["--help"], ["bench", "--help"], ["report", "-h"]):
        code, shown = on_terminal(arguments, columns)
        assert code in (0, 2)
        assert "Usage: gpubalance" in shown
        assert "internal error" not in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script_for_completion(shell: str) -> None:
    environment = command_environment(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")  # else: that of the caller
    done = run_cli("--show-completion", shell, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "_GPUBALANCE_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("gpubalance be", {"bench"}),
        ("gpubalance bench --expect", {"--expect-gpus"}),
        ("gpubalance probe --expect", {"--expect-gpus", "--expect-nvlinks"}),
        ("gpubalance bench --conf", {"--config"}),
        ("gpubalance --config /nowhere be", {"bench"}),
    ],
)
def test_a_shell_is_told_what_completes_a_word(typed: str, completed: set[str]) -> None:
    environment = command_environment(
        _GPUBALANCE_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(len(typed.split()) - 1)
    )
    done = run_cli(env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == completed


@pytest.mark.parametrize(
    ("columns", "term", "rewritten"),
    [(80, "xterm", True), (44, "xterm", True), (43, "xterm", False), (80, "dumb", False), (0, "xterm", True)],
)
def test_progress_is_rewritten_in_place_only_where_it_fits_on_one_line(
    monkeypatch: pytest.MonkeyPatch, columns: int, term: str, rewritten: bool
) -> None:
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    monkeypatch.setenv("TERM", term)
    with os.fdopen(side, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        display = StderrDisplay()
        display.phase("solo", 0)  # "[  0.0 s] each device alone, 1234567 blocks" has 43 characters
        display.advance(1234567)
        display.close()
    shown = _all_of(terminal).decode()
    assert "each device alone" in shown
    assert ("\r[  0.0 s] each device alone, 1234567 blocks" in shown) == rewritten

"""Verdicts become exit codes, and results become bytes on stdout."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from gpubalance.checks.verdict import Judgement, Verdict, judge
from gpubalance.cli.output import exit_code_of, write_json, write_report
from gpubalance.cli.stdout import write_stdout
from gpubalance.errors import CannotMeasureError
from gpubalance.reports.document import document_text
from gpubalance.testing.runs import make_attempt, make_run, steady

RUN = make_run([make_attempt(steady([100.0, 100.0]))])
JUDGEMENT = judge(RUN)


def judged(verdict: Verdict) -> Judgement:
    return replace(JUDGEMENT, verdict=verdict)


CODES = [
    (Verdict.PASS, {"fail": 0, "warn": 0, "never": 0}),
    (Verdict.WARN, {"fail": 0, "warn": 1, "never": 0}),
    (Verdict.FAIL, {"fail": 1, "warn": 1, "never": 0}),
    (Verdict.INCONCLUSIVE, {"fail": 3, "warn": 3, "never": 3}),
]


@pytest.mark.parametrize("fail_on", ["fail", "warn", "never"])
@pytest.mark.parametrize(("verdict", "codes"), CODES, ids=[verdict.value for verdict, _ in CODES])
def test_each_verdict_has_its_exit_code(verdict: Verdict, codes: dict[str, int], fail_on: str) -> None:
    assert exit_code_of(RUN, judged(verdict), fail_on) == codes[fail_on]


def test_every_verdict_stands_in_the_table() -> None:
    assert {verdict for verdict, _ in CODES} == set(Verdict)


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize(("number", "code"), [(1, 129), (2, 130), (15, 143)])
def test_a_signal_that_ended_the_run_wins_over_any_verdict(verdict: Verdict, number: int, code: int) -> None:
    ended = RUN.model_copy(update={"interrupted_by": number})
    assert exit_code_of(ended, judged(verdict), "never") == code


class Stdout:
    """A standard output of this encoding, and what was written to it."""

    def __init__(self, encoding: str, terminal: bool) -> None:
        self.bytes = io.BytesIO()
        self.stream = io.TextIOWrapper(self.bytes, encoding=encoding, errors="strict")
        self.stream.isatty = lambda: terminal  # type: ignore[method-assign]

    def written(self) -> bytes:
        self.stream.flush()
        return self.bytes.getvalue()


Open = Callable[..., Stdout]


@pytest.fixture
def stdout(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Put such a standard output in place."""

    def put(encoding: str = "utf-8", *, terminal: bool = False) -> Stdout:
        fake = Stdout(encoding, terminal)
        monkeypatch.setattr(sys, "stdout", fake.stream)
        return fake

    return put


def test_bytes_arrive_as_they_are_behind_what_was_printed_before(stdout: Open) -> None:
    shown = stdout()
    shown.stream.write("before ")
    write_stdout(b"\xff\x00\n")
    assert shown.written() == b"before \xff\x00\n"


def test_json_is_utf_8_whatever_the_locale_says(stdout: Open) -> None:
    shown = stdout("ascii")
    devices = [device.model_copy(update={"name": "Übertragung"}) for device in RUN.plan.devices]
    run = RUN.model_copy(update={"plan": RUN.plan.model_copy(update={"devices": devices})})
    write_json(run, JUDGEMENT)
    assert shown.written() == document_text(run, JUDGEMENT).encode("utf-8")
    assert "Übertragung".encode() in shown.written()


def test_off_a_terminal_the_report_carries_no_escape_codes(stdout: Open) -> None:
    shown = stdout()
    write_report(RUN, JUDGEMENT, "run.json")
    assert b"\nPASS  node can train evenly" in shown.written()
    assert b"\x1b" not in shown.written()
    assert shown.written().endswith(b"\nSaved: run.json\n")


def test_on_a_narrow_terminal_the_verdict_is_coloured_and_lines_break_at_spaces_only(
    stdout: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = stdout(terminal=True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)
    write_report(RUN, JUDGEMENT, "run.json")
    text = shown.written().decode()
    assert "\x1b[1;32mPASS" in text
    assert "rank 0 is cuda:0 nvml:0\nGPU-00000001-aaaa-bbbb-cccc-000000000000\n0000:06:00.0\n" in text
    assert all(len(line) <= 40 for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines())


def test_a_user_who_wants_no_colour_gets_none(stdout: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = stdout(terminal=True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    write_report(RUN, JUDGEMENT, "run.json")
    assert "\x1b[1;32m" not in shown.written().decode()


def test_a_closed_stdout_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(CannotMeasureError, match="stdout is closed"):
        write_json(RUN, JUDGEMENT)
    with pytest.raises(CannotMeasureError, match="stdout is closed"):
        write_report(RUN, JUDGEMENT, None)


class Full(io.BytesIO):
    """Takes nothing, like a full disk."""

    def write(self, _: object) -> int:
        raise OSError(28, "No space left on device")


def test_a_stdout_that_takes_nothing_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(Full(), encoding="utf-8"))
    with pytest.raises(CannotMeasureError, match="could not be written to stdout: No space left on device"):
        write_json(RUN, JUDGEMENT)
    assert sys.stdout is None

"""Runs the selftest session for the command line: display, saving, output, exit code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gpubalance.checks.selftest.verdict import SelftestJudgement, judge_selftest
from gpubalance.cli.output import (
    PLAIN,
    Exits,
    NagiosCode,
    exit_code_after,
    exit_code_of_verdict,
    report_width,
    write_lines,
)
from gpubalance.cli.progress import StderrDisplay
from gpubalance.cli.reports_option import Report, check_reports, save_report
from gpubalance.cli.saving import save_record
from gpubalance.cli.stdout import write_stdout
from gpubalance.errors import UsageError
from gpubalance.record.file import check_writable
from gpubalance.record.history import state_home
from gpubalance.record.selftest import Selftest
from gpubalance.reports.document import document_text
from gpubalance.reports.selftest_report import selftest_lines, selftest_markdown
from gpubalance.session.selftest import selftest
from gpubalance.settings import SelftestSettings

REPORTS = ("json", "markdown")
"""Forms for `--report`."""
FORMATS = ("terminal", *REPORTS, "svg")


def run_selftest(settings: SelftestSettings, *, as_json: bool, reports: Sequence[Report] = ()) -> int:
    """Play, judge, save, print, and return the exit code."""
    if settings.out is not None:
        check_writable(Path(settings.out))
    check_reports(reports, settings.out, as_json=as_json)
    display = StderrDisplay()
    try:
        done = selftest(settings, display)
    finally:
        display.close()
    text, home = document_text(done.record, done.judgement), state_home(os.environ)
    folder = None if home is None else home / "selftests"  # apart from runs, which baselines look through
    saved, lost = save_record(text, settings.out, folder, f"{done.record.selftest_id}.json")
    for report in reports:
        content = _text(report.format, done.record, done.judgement)
        lost |= report.path is not None and not save_report(report.format, report.path, content)
    on_stdout = ["json"] if as_json else [report.format for report in reports if report.path is None]
    if on_stdout:
        write_stdout(_text(on_stdout[0], done.record, done.judgement))
    else:
        write_lines(selftest_lines(done.record, done.judgement, saved, report_width()))
    return exit_code_after(_exit_code(done.record, done.judgement, PLAIN), lost=lost)


def report_selftest(record: Selftest, to: str, path: str, exits: Exits = PLAIN) -> int:
    """A saved selftest again, judged by the rules of this version."""
    if to not in FORMATS:
        raise UsageError(f"a selftest has no {to}", f"choose from: {', '.join(FORMATS)}")
    judgement = judge_selftest(record)
    if to in REPORTS:
        write_stdout(_text(to, record, judgement))
    elif to == "svg":
        from gpubalance.reports.picture import svg_text

        write_stdout(svg_text(selftest_lines(record, judgement, path), "gpubalance selftest").encode())
    else:
        write_lines(selftest_lines(record, judgement, path, report_width()))
    return _exit_code(record, judgement, exits)


def _text(form: str, record: Selftest, judgement: SelftestJudgement) -> bytes:
    """One of REPORTS, in UTF-8."""
    write = document_text if form == "json" else selftest_markdown
    return write(record, judgement).encode("utf-8", "backslashreplace")


def _exit_code(record: Selftest, judgement: SelftestJudgement, exits: Exits) -> int:
    if record.interrupted_by is not None:
        return NagiosCode.UNKNOWN if exits.nagios else 128 + record.interrupted_by
    return exit_code_of_verdict(judgement.verdict, "fail", exits)

"""Runs the bench session for the command line: display, saving, output, exit code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpubalance.checks.verdict import judge
from gpubalance.cli.output import PLAIN, Exits, exit_code_after, exit_code_of, measuring, write_json, write_report
from gpubalance.cli.progress import StderrDisplay
from gpubalance.cli.remember import remember
from gpubalance.cli.reports_option import Report, check_reports, write_reports, write_stdout_report
from gpubalance.cli.saving import save_record
from gpubalance.errors import ExitCode
from gpubalance.record.file import check_writable, state_folder
from gpubalance.reports.document import document_text
from gpubalance.session.bench import Doubt, Finished, bench
from gpubalance.session.compare import AUTO, against_baseline, check_base, slower_than_before
from gpubalance.session.last_verdict import remember_run
from gpubalance.settings import BenchSettings


def run_bench(
    settings: BenchSettings,
    *,
    as_json: bool,
    reports: Sequence[Report] = (),
    exits: Exits = PLAIN,
    baseline: str | None = None,
    require_baseline: bool = False,
) -> int:
    """Run, judge (against a baseline as well, where one is named), save, print, and return the exit code."""
    if settings.out is not None:
        check_writable(Path(settings.out))
    check_reports(reports, settings.out, as_json=as_json)
    base = baseline or (AUTO if require_baseline else None)
    if base is not None:
        check_base(base)
    display = StderrDisplay()
    try:
        with measuring(exits):
            finished = bench(settings, display, _doubt(base))
    finally:
        display.close()
    if finished is None:
        return ExitCode.PASS
    if base is not None:
        run = against_baseline(base, finished.run, finished.judgement, os.environ, required=require_baseline)
        finished = replace(finished, run=run, judgement=judge(run))
    text = document_text(finished.run, finished.judgement)
    saved, lost = save_record(text, settings.out, state_folder(os.environ), f"{finished.run.run_id}.json")
    _remember(settings, finished, saved)
    lost |= write_reports(reports, finished.run, finished.judgement)
    if as_json:
        write_json(finished.run, finished.judgement)
    elif not write_stdout_report(reports, finished.run, finished.judgement):
        write_report(finished.run, finished.judgement, saved)
    code = exit_code_of(finished.run, finished.judgement, settings.fail_on, exits)
    return exit_code_after(code, lost=lost)


def _doubt(base: str | None) -> Doubt | None:
    return None if base is None else partial(slower_than_before, base, environment=os.environ)


def _remember(settings: BenchSettings, finished: Finished, saved: str | None) -> None:
    """With the plain exit code, whatever the style that was asked for."""
    code = exit_code_of(finished.run, finished.judgement, settings.fail_on)
    remember(lambda home: remember_run(home, finished.run, finished.judgement, code, saved))

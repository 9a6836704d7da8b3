"""Runs the bench session for the command line: display, saving, output, exit code."""

from __future__ import annotations

import os
from pathlib import Path

from gpubalance.cli.entry import complain
from gpubalance.cli.output import exit_code_of, write_json, write_report
from gpubalance.cli.progress import StderrDisplay
from gpubalance.errors import ExitCode
from gpubalance.record.file import check_writable, save_text, state_folder
from gpubalance.reports.document import document_text
from gpubalance.session.bench import Finished, bench
from gpubalance.settings import BenchSettings


def run_bench(settings: BenchSettings, *, as_json: bool) -> int:
    """Run, save, print, and return the exit code."""
    if settings.out is not None:
        check_writable(Path(settings.out))
    display = StderrDisplay()
    try:
        finished = bench(settings, display)
    finally:
        display.close()
    if finished is None:
        return ExitCode.PASS
    saved, lost = _save(settings, finished)
    if as_json:
        write_json(finished.run, finished.judgement)
    else:
        write_report(finished.run, finished.judgement, saved)
    code = exit_code_of(finished.run, finished.judgement, settings.fail_on)
    return ExitCode.NO_VERDICT if lost and code == ExitCode.PASS else code


def _save(settings: BenchSettings, finished: Finished) -> tuple[str | None, bool]:
    """Where the record was saved, and whether a place that was asked for could not be written."""
    asked = Path(settings.out) if settings.out is not None else None
    path = asked or _default_path(finished)
    if path is None:
        return None, False
    try:
        save_text(path, document_text(finished.run, finished.judgement))
    except OSError as error:
        complain(f"the record could not be saved to {path}: {error.strerror}", None)
        return None, asked is not None
    return str(path), False


def _default_path(finished: Finished) -> Path | None:
    folder = state_folder(os.environ)
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / f"{finished.run.run_id}.json"

"""Runs the probe session for the command line: saving, output, exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpubalance.checks.probing.verdict import judge_probe
from gpubalance.cli.output import (
    PLAIN,
    Exits,
    exit_code_after,
    exit_code_of_verdict,
    measuring,
    report_width,
    write_lines,
)
from gpubalance.cli.remember import remember
from gpubalance.cli.reports_option import Report, check_reports, write_reports, write_stdout_report
from gpubalance.cli.saving import save_record
from gpubalance.cli.stdout import write_stdout
from gpubalance.errors import UsageError
from gpubalance.record.file import check_writable
from gpubalance.record.probe import Probe
from gpubalance.reports.document import document_text
from gpubalance.reports.probe_report import probe_lines
from gpubalance.session.last_verdict import remember_probe
from gpubalance.session.probe import probe
from gpubalance.settings import ProbeSettings


def run_probe(
    settings: ProbeSettings,
    *,
    as_json: bool,
    verbose: bool,
    reports: Sequence[Report] = (),
    exits: Exits = PLAIN,
) -> int:
    """Look, save, print, and return the exit code."""
    if settings.out is not None:
        check_writable(Path(settings.out))
    check_reports(reports, settings.out, as_json=as_json)
    with measuring(exits):
        probed = probe(settings)
    text = document_text(probed.probe, probed.judgement)
    saved, lost = save_record(text, settings.out, None, "")
    lost |= write_reports(reports, probed.probe, probed.judgement)
    plain = exit_code_of_verdict(probed.judgement.verdict, settings.fail_on)
    remember(lambda home: remember_probe(home, probed.probe, probed.judgement, plain, saved))
    if as_json:
        write_stdout(text.encode())
    elif not write_stdout_report(reports, probed.probe, probed.judgement):
        write_lines(probe_lines(probed.probe, probed.judgement, saved, report_width(), verbose=verbose))
    code = exit_code_of_verdict(probed.judgement.verdict, settings.fail_on, exits)
    return exit_code_after(code, lost=lost)


def report_probe(loaded: Probe, to: str, path: str, exits: Exits = PLAIN) -> int:
    """A saved probe again, judged by the rules of this version."""
    judgement = judge_probe(loaded)
    if to == "json":
        write_stdout(document_text(loaded, judgement).encode())
    elif to == "svg":
        from gpubalance.reports.picture import svg_text

        write_stdout(svg_text(probe_lines(loaded, judgement, path), "gpubalance probe").encode())
    elif to == "terminal":
        write_lines(probe_lines(loaded, judgement, path, report_width()))
    else:
        raise UsageError(f"a probe has no {to}: it holds no samples over time", "use --to json")
    return exit_code_of_verdict(judgement.verdict, "fail", exits)

"""Runs the probe session for the command line: saving, output, exit code."""

from __future__ import annotations

from pathlib import Path

from gpubalance.checks.probing.verdict import judge_probe
from gpubalance.cli.entry import complain
from gpubalance.cli.output import exit_code_of_verdict, write_lines, write_stdout
from gpubalance.errors import ExitCode, UsageError
from gpubalance.record.file import check_writable, save_text
from gpubalance.record.probe import Probe
from gpubalance.reports.document import probe_document_text
from gpubalance.reports.probe_report import probe_lines
from gpubalance.session.probe import Probed, probe
from gpubalance.settings import ProbeSettings


def run_probe(settings: ProbeSettings, *, as_json: bool, verbose: bool) -> int:
    """Look, save, print, and return the exit code."""
    if settings.out is not None:
        check_writable(Path(settings.out))
    probed = probe(settings)
    lost = settings.out is not None and not _save(Path(settings.out), probed)
    saved = None if lost else settings.out
    if as_json:
        write_stdout(probe_document_text(probed.probe, probed.judgement).encode())
    else:
        write_lines(probe_lines(probed.probe, probed.judgement, saved, verbose=verbose))
    code = exit_code_of_verdict(probed.judgement.verdict, settings.fail_on)
    return ExitCode.NO_VERDICT if lost and code == ExitCode.PASS else code


def report_probe(loaded: Probe, to: str, path: str) -> int:
    """A saved probe again, judged by the rules of this version."""
    judgement = judge_probe(loaded)
    if to == "json":
        write_stdout(probe_document_text(loaded, judgement).encode())
    elif to == "svg":
        from gpubalance.reports.picture import svg_text

        write_stdout(svg_text(probe_lines(loaded, judgement, path), "gpubalance probe").encode())
    elif to == "terminal":
        write_lines(probe_lines(loaded, judgement, path))
    else:
        raise UsageError(f"a probe has no {to}: it holds no samples over time", "use --to json")
    return exit_code_of_verdict(judgement.verdict, "fail")


def _save(path: Path, probed: Probed) -> bool:
    try:
        save_text(path, probe_document_text(probed.probe, probed.judgement))
    except OSError as error:
        complain(f"the record could not be saved to {path}: {error.strerror}", None)
        return False
    return True

"""What is written where: results on stdout by a plain write, everything else on stderr."""

from __future__ import annotations

import sys

from gpubalance.checks.verdict import Judgement, Verdict
from gpubalance.errors import CannotMeasureError, ExitCode
from gpubalance.record.run import Run
from gpubalance.reports.document import document_text
from gpubalance.reports.terminal import Line, report_lines


def write_json(run: Run, judgement: Judgement) -> None:
    """Exactly one document, UTF-8 whatever the locale says."""
    write_stdout(document_text(run, judgement).encode())


def write_stdout(data: bytes) -> None:
    """Write and flush. Raises CannotMeasureError when it cannot be done: a result that nobody saw never passes, and
    Python alone would say nothing about a closed stdout and exit with 0.
    """
    if sys.stdout is None:
        raise CannotMeasureError("stdout is closed: the result could not be written")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        sys.stdout = None  # so that the flush at exit has nowhere to fail
        raise CannotMeasureError(f"the result could not be written to stdout: {error.strerror}") from None


def write_report(run: Run, judgement: Judgement, saved: str | None) -> None:
    """The report: coloured on a terminal, plain text everywhere else."""
    write_lines(report_lines(run, judgement, saved))


def write_lines(lines: list[Line]) -> None:
    """Lines of a report on stdout, as `write_report` says."""
    if sys.stdout is not None and sys.stdout.isatty():
        _write_styled(lines)
        return
    encoding = (sys.stdout.encoding if sys.stdout is not None else None) or "ascii"
    write_stdout("".join(f"{line.text}\n" for line in lines).encode(encoding, "backslashreplace"))


def _write_styled(lines: list[Line]) -> None:
    from rich.console import Console
    from rich.text import Text

    from gpubalance.reports.picture import STYLES

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text(line.text, style=STYLES[line.style]))


def exit_code_of(run: Run, judgement: Judgement, fail_on: str) -> int:
    """The exit code of a verdict. A signal that ended the run wins: nobody asked for a verdict then."""
    if run.interrupted_by is not None:
        return 128 + run.interrupted_by
    return exit_code_of_verdict(judgement.verdict, fail_on)


def exit_code_of_verdict(verdict: Verdict, fail_on: str) -> int:
    """The exit code of a verdict alone."""
    if verdict is Verdict.INCONCLUSIVE:
        return ExitCode.NO_VERDICT
    failing = {"fail": (Verdict.FAIL,), "warn": (Verdict.FAIL, Verdict.WARN), "never": ()}[fail_on]
    return ExitCode.FAIL if verdict in failing else ExitCode.PASS

"""What is written where: results on stdout by a plain write, everything else on stderr."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.verdict import Judgement, Verdict
from gpubalance.cli.stdout import write_stdout
from gpubalance.errors import CannotMeasureError, ExitCode, GpubalanceError, Interrupted, UsageError
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.reports.document import document_text
from gpubalance.reports.fold import WIDTH, Line
from gpubalance.reports.terminal import report_lines


def write_json(run: Run, judgement: Judgement) -> None:
    """Exactly one document, UTF-8 whatever the locale says."""
    write_stdout(document_text(run, judgement).encode())


def write_report(run: Run, judgement: Judgement, saved: str | None) -> None:
    """The report: coloured on a terminal, plain text everywhere else."""
    write_lines(report_lines(run, judgement, saved, report_width()))


NARROWEST = 40
"""Reports are folded for no narrower terminal: ids alone have 40 characters."""


def report_width() -> int:
    """Columns that a report is folded for: those of the terminal that it goes to, 80 wherever it goes else."""
    return max(NARROWEST, _columns()) if _on_terminal() else WIDTH


def _on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _columns() -> int:
    """As the shell or the terminal itself says: a dumb one has a width too."""
    return shutil.get_terminal_size((WIDTH, 24)).columns


def write_lines(lines: list[Line]) -> None:
    """Lines of a report on stdout, as `write_report` says."""
    if _on_terminal():
        _write_styled(lines)
        return
    encoding = (sys.stdout.encoding if sys.stdout is not None else None) or "ascii"
    write_stdout("".join(f"{line.text}\n" for line in lines).encode(encoding, "backslashreplace"))


def _write_styled(lines: list[Line]) -> None:
    from rich.console import Console
    from rich.text import Text

    from gpubalance.reports.picture import STYLES

    console = Console(highlight=False, soft_wrap=True)
    columns = _columns()
    for line in lines:
        text = line.text.encode(console.encoding, "backslashreplace").decode(console.encoding)
        for part in folded(text, columns):
            console.print(Text(part, style=STYLES[line.style]))


def folded(text: str, width: int) -> list[str]:
    """A row of a table for a narrower terminal, broken at spaces only: the terminal would break within numbers."""
    if len(text) <= width:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


class NagiosCode(IntEnum):
    """Exit codes of a monitoring plugin; whoever reads them takes any other number for CRITICAL."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True)
class Exits:
    """How verdicts become exit codes, beside `--fail-on`."""

    style: str = "plain"
    """plain, or nagios: 0 ok, 1 warning, 2 critical, 3 unknown."""
    on_no_verdict: str | None = None
    """fail or pass instead of a code of its own."""

    def __post_init__(self) -> None:
        """Raise UsageError for a word that is not known."""
        if self.style not in ("plain", "nagios"):
            raise UsageError(f"exit-style {self.style!r} is not known", "choose from: plain, nagios")
        if self.on_no_verdict not in (None, "fail", "pass"):
            raise UsageError(f"on-no-verdict {self.on_no_verdict!r} is not known", "choose from: fail, pass")

    @property
    def nagios(self) -> bool:
        """True for the codes of a monitoring plugin."""
        return self.style == "nagios"


PLAIN = Exits()


def exit_code_of(record: Run | Probe, judgement: Judgement | ProbeJudgement, fail_on: str, exits: Exits = PLAIN) -> int:
    """The exit code of a verdict. A signal that ended the run wins: nobody asked for a verdict then."""
    if isinstance(record, Run) and record.interrupted_by is not None:
        return NagiosCode.UNKNOWN if exits.nagios else 128 + record.interrupted_by
    return exit_code_of_verdict(judgement.verdict, fail_on, exits)


def exit_code_of_verdict(verdict: Verdict, fail_on: str, exits: Exits = PLAIN) -> int:
    """The exit code of a verdict alone."""
    failed = NagiosCode.CRITICAL if exits.nagios else ExitCode.FAIL
    if verdict is Verdict.INCONCLUSIVE:
        return {None: ExitCode.NO_VERDICT, "fail": failed, "pass": ExitCode.PASS}[exits.on_no_verdict]
    failing = {"fail": (Verdict.FAIL,), "warn": (Verdict.FAIL, Verdict.WARN), "never": ()}[fail_on]
    if verdict in failing:
        return failed
    warned = exits.nagios and verdict is Verdict.WARN and fail_on != "never"
    return NagiosCode.WARNING if warned else ExitCode.PASS


def exit_code_after(code: int, *, lost: bool) -> int:
    """The code when something that was asked for could not be written: no pass any more."""
    return ExitCode.NO_VERDICT if lost and code == ExitCode.PASS else code


@contextmanager
def measuring(exits: Exits) -> Iterator[None]:
    """Around what measures: that nothing could be measured is no verdict, and `--on-no-verdict` holds for it too."""
    try:
        yield
    except CannotMeasureError as failure:
        error: GpubalanceError = failure
        error.exit_code = exit_code_of_verdict(Verdict.INCONCLUSIVE, "fail", exits)
        raise


@contextmanager
def failing(exits: Exits) -> Iterator[None]:
    """Around a whole command: under nagios wrong use and signals are UNKNOWN, because their own codes mean CRITICAL."""
    try:
        yield
    except GpubalanceError as error:
        if exits.nagios and isinstance(error, UsageError | Interrupted):
            error.exit_code = NagiosCode.UNKNOWN
        raise

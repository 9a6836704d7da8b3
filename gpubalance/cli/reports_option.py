"""`--report FORMAT=PATH`: reports beside the one that people read, checked before and written after the measurement."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpubalance.cli.entry import complain
from gpubalance.cli.stdout import write_stdout
from gpubalance.errors import UsageError
from gpubalance.record.file import check_writable, save_text
from gpubalance.reports.formats import FORMATS, write
from gpubalance.reports.record_parts import AnyJudgement, Record

EXAMPLE = "for example: --report html=report.html,junit=report.xml"


@dataclass(frozen=True)
class Report:
    """One report that was asked for."""

    format: str
    path: Path | None
    """None is stdout."""


def parse_reports(
    texts: Sequence[str] | None, known: Collection[str] = tuple(FORMATS), what: str = "a run"
) -> tuple[Report, ...]:
    """Read `html=path,junit=-`, as often as it was given. Raises UsageError; `what` has no other formats than those
    that are known.
    """
    return tuple(_parse(entry.strip(), known, what) for text in texts or () for entry in text.split(","))


def _parse(entry: str, known: Collection[str], what: str) -> Report:
    name, _, path = entry.partition("=")
    if not path:
        raise UsageError(f"report {entry!r} is not FORMAT=PATH", EXAMPLE)
    if name not in known:
        text = f"{what} has no {name} report" if name in FORMATS else f"report format {name!r} is not known"
        raise UsageError(text, f"choose from: {', '.join(known)}")
    return Report(name, None if path == "-" else Path(path))


def check_reports(reports: Sequence[Report], out: str | None, *, as_json: bool) -> None:
    """Raise UsageError unless each report has a place of its own that can be written."""
    on_stdout = [report.format for report in reports if report.path is None]
    if as_json:
        on_stdout.append("--json")
    if len(on_stdout) > 1:
        raise UsageError(f"stdout holds one document, not {' and '.join(on_stdout)}", "give a path for the others")
    places = [os.path.realpath(report.path) for report in reports if report.path is not None]
    places += [os.path.realpath(out)] if out is not None else []
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice is not None:
        raise UsageError(f"two reports cannot both be written to {twice}", EXAMPLE)
    for report in reports:
        if report.path is not None:
            check_writable(report.path, f"--report {report.format}=")


def write_reports(reports: Sequence[Report], record: Record, judgement: AnyJudgement) -> bool:
    """Write all that go to files, and GitHub's summary. True when one of them could not be written, which is said."""
    files = [
        save_report(report.format, report.path, report_bytes(report.format, record, judgement))
        for report in reports
        if report.path is not None
    ]
    if any(report.format == "github" for report in reports):
        files.append(append_summary(os.environ, record, judgement))
    return not all(files)


def write_stdout_report(reports: Sequence[Report], record: Record, judgement: AnyJudgement) -> bool:
    """Write the one that goes to stdout. False when there is none. Raises CannotMeasureError as `write_stdout` does."""
    for report in reports:
        if report.path is None:
            write_stdout(report_bytes(report.format, record, judgement))
            return True
    return False


def report_bytes(name: str, record: Record, judgement: AnyJudgement) -> bytes:
    """A report in UTF-8; bytes of names that are no text are spelled out."""
    return write(name, record, judgement).encode("utf-8", "backslashreplace")


def save_report(name: str, path: Path, data: bytes) -> bool:
    """Write UTF-8. False when it could not be written, which is said."""
    try:
        save_text(path, data.decode())
    except OSError as error:
        complain(f"the {name} report could not be written to {path}: {error.strerror}", None)
        return False
    return True


def append_summary(environment: Mapping[str, str], record: Record, judgement: AnyJudgement) -> bool:
    """Append the step's summary where GitHub wants it. True when that was done, or nobody runs us for GitHub."""
    from gpubalance.reports.github import summary

    place = environment.get("GITHUB_STEP_SUMMARY")
    if not place:
        return True
    text = summary(record, judgement).encode("utf-8", "backslashreplace")
    try:
        with Path(place).open("ab") as file:  # earlier parts of the step may have written there
            file.write(text)
    except OSError as error:
        complain(f"the summary could not be written to {place}: {error.strerror}", None)
        return False
    return True

"""GitHub Actions: workflow commands that become annotations, and the summary of the step in markdown."""

from __future__ import annotations

from collections.abc import Iterator

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.verdict import Verdict
from gpubalance.reports.printable import printable
from gpubalance.reports.record_parts import AnyJudgement, Record, finding_lines, rehearsal

SUMMARY_LIMIT_BYTES = 1024 * 1024 - 1024
"""GitHub drops a step's summary above 1 MiB whole; some of it is left for what stands there already."""

LEVEL_OF = {Verdict.PASS: "notice", Verdict.WARN: "warning", Verdict.FAIL: "error", Verdict.INCONCLUSIVE: "error"}

_CUT = "\n\n(cut here: GitHub takes no more in one summary)\n"


def github_text(record: Record, judgement: AnyJudgement) -> str:
    """Annotations for stdout: a workflow command for each finding that somebody should see, worst first, because GitHub
    shows ten of a level.

    Errors are fails and what leaves no verdict, warnings are warnings, notices what was not measured and not required.
    The verdict comes first unless a finding says the same sentence.
    """
    found = [(level, finding) for finding in judgement.findings if (level := _level(finding)) is not None]
    return "".join((
        *_verdict(record, judgement, [finding for _, finding in found]),
        *(_command(level, finding.id, _told(finding)) for level, finding in found),
    ))  # fmt: skip


def summary(record: Record, judgement: AnyJudgement) -> str:
    """The step's summary: the markdown report, short enough for GitHub."""
    from gpubalance.reports.markdown import markdown_text

    return cut(markdown_text(record, judgement), SUMMARY_LIMIT_BYTES)


def cut(text: str, limit_bytes: int) -> str:
    """The text, or as many whole lines of it as fit into so many bytes of UTF-8 together with a note that says so."""
    if len(text.encode()) <= limit_bytes:
        return text
    room = limit_bytes - len(_CUT.encode())
    kept = text.encode()[:room]
    return kept[: kept.rfind(b"\n") + 1].decode().rstrip("\n") + _CUT


def _level(finding: Finding) -> str | None:
    if finding.state is State.FAIL or (finding.state is State.UNKNOWN and finding.required):
        return "error"
    return {State.WARN: "warning", State.UNKNOWN: "notice"}.get(finding.state)


def _verdict(record: Record, judgement: AnyJudgement, found: list[Finding]) -> Iterator[str]:
    staged = rehearsal(record)
    if staged is not None:
        yield _command("notice", "rehearsal", [f"{staged}. This says nothing about the node."])
    if all(finding.message != judgement.sentence for finding in found):
        yield _command(LEVEL_OF[judgement.verdict], judgement.verdict.value, [judgement.sentence])


def _told(finding: Finding) -> list[str]:
    return [finding.message, *finding_lines(finding)]


def _command(level: str, title: str, lines: list[str]) -> str:
    text = "\n".join(printable(line) for line in lines)
    return f"::{level} title={_property(f'gpubalance {printable(title)}')}::{_data(text)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

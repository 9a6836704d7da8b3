"""GitHub's markdown, for comments on pull requests and step summaries: verdict, findings, ranks, the rest folded.

Below GitHub's limit for a comment. What has no room is left out in whole parts, folded ones and tables before any
finding that is no pass, and of those the worst are kept longest; the text says what was left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.verdict import Judgement, Verdict
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.reports import probe_tables, run_tables
from gpubalance.reports.common_tables import played
from gpubalance.reports.header import header_lines
from gpubalance.reports.printable import printable
from gpubalance.reports.table import Column, Table
from gpubalance.reports.terminal import WORDS

LARGEST = 64_000
"""Bytes; a comment on GitHub has at most 65536 characters."""

LONGEST_CELL = 600
"""Characters of one value; a step summary is no place for a page in one cell."""

MOST_EVIDENCE = 20

FOLDED = (State.PASS, State.SKIP)
_HERE = "gpubalance report --to html shows everything"
_COLUMNS = (Column("state", words=True), Column("check", words=True), Column("finding", words=True),
            Column("observed", words=True), Column("expected", words=True), Column("next", words=True))  # fmt: skip
_MARKS = str.maketrans({
    **{mark: f"&#{ord(mark)};" for mark in "&<>|\\`"},
    **{mark: f"\\{mark}" for mark in "*_[]~"},
    **{mark: f"{mark}&#8203;" for mark in "@#"},
    "$": "<span>$</span>",
})  # fmt: skip
"""What markdown, GitHub's tables and HTML would obey. Nobody is called by @name and no issue by #number: a space
without width stands behind the mark, since GitHub looks for both after all escapes are undone.
"""


def markdown_text(record: Run | Probe, judgement: Judgement | ProbeJudgement) -> str:
    """The comment. A run takes the judgement of a run, a probe that of a probe."""
    main, more = _tables(record, judgement)
    return comment(judgement.verdict, judgement.sentence, _head(record), judgement.findings, main, more)


def comment(
    verdict: Verdict,
    sentence: str,
    about: Sequence[str],
    all_findings: Sequence[Finding],
    main: Sequence[Table],
    more: Sequence[Table] = (),
) -> str:
    """The comment from its parts; `about` comes escaped and stands below the verdict."""
    head = [f"### {WORDS[verdict]}: {escaped(sentence)}", *about]
    open_rows = [_finding(f) for f in all_findings if f.state not in FOLDED]
    folded_rows = [_finding(f) for f in all_findings if f.state in FOLDED]
    findings = [_table(_COLUMNS, open_rows)] if open_rows else []
    parts = [
        *(titled(table) for table in main),
        *([_fold(_counted(all_findings), _table(_COLUMNS, folded_rows))] if folded_rows else []),
        *(_fold(escaped(table.title), _drawn(table)) for table in more),
    ]
    text = _joined([*head, *findings])
    if _size(text) > LARGEST:
        return _cut(head[0], all_findings)
    return _with(text, parts)


def escaped(text: str) -> str:
    """The text as it is, on one line, wherever it came from."""
    text = printable(text)
    if len(text) > LONGEST_CELL:
        text = f"{text[:LONGEST_CELL]} ... ({len(text)} characters)"
    return text.translate(_MARKS).replace("://", ":&#8203;//").replace("www.", "www&#8203;.")


def _head(record: Run | Probe) -> list[str]:
    host = record.node.hostname if record.node else "host not known"
    if isinstance(record, Probe):
        lines = [f"gpubalance {record.gpubalance_version}, a look of {record.duration_s:.1f} s"]
    else:
        lines = header_lines(record)
    warning = played(record)
    about = "<br>".join(escaped(line) for line in (*lines, f"{host}, {record.started_at}"))
    return [*([f"<b>{escaped(warning)}</b>"] if warning else []), about]


def _tables(record: Run | Probe, judgement: Judgement | ProbeJudgement) -> tuple[list[Table], list[Table]]:
    if isinstance(record, Probe):
        return probe_tables.main_tables(record), probe_tables.more_tables(record)
    assert isinstance(judgement, Judgement)
    return run_tables.main_tables(record, judgement), run_tables.more_tables(record)


def _finding(finding: Finding) -> tuple[str, ...]:
    """All fields; what belongs to the sentence stands below it."""
    subject = [f"<code>{escaped(finding.subject)}</code>"] if finding.subject else []
    evidence = [f"- {escaped(text)}" for text in finding.evidence[:MOST_EVIDENCE]]
    more = len(finding.evidence) - MOST_EVIDENCE
    evidence += [f"- and {more} more; {_HERE}"] if more > 0 else []
    text = "<br>".join([f"<b>{escaped(finding.message)}</b>", *subject, *evidence])
    state = finding.state.value + (" (required)" if finding.required else "")
    rest = (finding.observed, finding.expected, finding.next_step)
    return state, f"<code>{escaped(finding.id)}</code>", text, *(escaped(value or "") for value in rest)


def _counted(findings: Iterable[Finding]) -> str:
    counts = Counter(finding.state for finding in findings)
    return ", ".join(f"{counts[state]} {state.value}" for state in FOLDED if counts[state])


def titled(table: Table) -> str:
    """A heading and the table below it, escaped."""
    return f"#### {escaped(table.title)}\n\n{_drawn(table)}"


def _drawn(table: Table) -> str:
    rows = [tuple(escaped(cell) for cell in row) for row in table.rows]
    notes = "".join(f"\n\n{escaped(note)}" for note in table.notes)
    return _table(table.columns, rows) + notes


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Cells come escaped."""
    names = [escaped(f"{column.name}, {column.unit}" if column.unit else column.name) for column in columns]
    rules = ["---" if column.words else "--:" for column in columns]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (names, rules, *rows))


def _fold(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _joined(parts: Iterable[str]) -> str:
    return "".join(f"{part}\n\n" for part in parts)


def _size(text: str) -> int:
    return len(text.encode())


def _with(text: str, parts: Sequence[str]) -> str:
    """As many of the parts as there is room for, in their order."""
    left_out = 0
    for part in parts:
        if _size(text) + _size(part) + len(_HERE) + 100 > LARGEST:
            left_out += 1
        else:
            text += f"{part}\n\n"
    return text + (f"{left_out} parts left out for want of room; {_HERE}.\n" if left_out else "")


def _cut(verdict: str, findings: Sequence[Finding]) -> str:
    """The verdict, as many of the worst findings as there is room for, and how many of each state are not here."""
    kept = len(findings)
    while True:
        left_out = Counter(finding.state.value for finding in findings[kept:])
        counts = ", ".join(f"{count} {state}" for state, count in left_out.items()) or "none"
        rows = _table(_COLUMNS, [_finding(finding) for finding in findings[:kept]])
        text = _joined([verdict, rows, f"Left out for want of room: all tables; of findings {counts}. {_HERE}."])
        if _size(text) <= LARGEST or kept == 0:
            return text
        kept = kept * 9 // 10

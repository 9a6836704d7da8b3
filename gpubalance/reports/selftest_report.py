"""What `gpubalance selftest` prints: the verdict, a table of what was played and what was named, the error rates with
exact bounds. Pure; fits 80 columns.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpubalance.checks.finding import percent
from gpubalance.checks.quality import BUSY_HOST
from gpubalance.checks.selftest.rows import HEALTHY
from gpubalance.checks.selftest.score import Outcome
from gpubalance.checks.selftest.verdict import Rate, SelftestJudgement
from gpubalance.record.selftest import Selftest
from gpubalance.record.untrusted import STDIN
from gpubalance.reports.fold import WIDTH, Line, paragraph, put_together
from gpubalance.reports.header import header_lines
from gpubalance.reports.markdown import escaped, titled
from gpubalance.reports.printable import printable
from gpubalance.reports.rank_table import aligned
from gpubalance.reports.selftest_table import HEADINGS, cells, table_of
from gpubalance.reports.terminal import WORDS

MOST_REASONS = 20


def selftest_lines(record: Selftest, judgement: SelftestJudgement, saved: str | None, width: int = WIDTH) -> list[Line]:
    """The whole report. `saved` is the record's file; `-`, where it came from standard input, is none to speak of."""
    sections = [
        _verdict(judgement),
        [paragraph(text) for text in header_lines(record)],
        [Line(printable(line)) for line in _table(judgement)],
        [paragraph(text, "  ") for text in wrong_lines(judgement)],
        [paragraph(text) for text in (*rate_lines(judgement), *_ending(record, saved))],
    ]
    return put_together(sections, width)


def selftest_markdown(record: Selftest, judgement: SelftestJudgement) -> str:
    """The same as markdown for GitHub."""
    head = f"### {WORDS[judgement.verdict]}: {escaped(judgement.sentence)}"
    about = "<br>".join(
        escaped(line) for line in (*header_lines(record), f"{record.node.hostname}, {record.started_at}")
    )
    rows = [titled(table_of(judgement))] if judgement.outcomes else []
    lines = [*wrong_lines(judgement), *rate_lines(judgement), *_ending(record, None)]
    return "".join(f"{part}\n\n" for part in (head, about, *rows, *(escaped(line) for line in lines)))


def _verdict(judgement: SelftestJudgement) -> list[Line]:
    word = WORDS[judgement.verdict]
    return [paragraph(f"{word}  {judgement.sentence}", " " * (len(word) + 2), judgement.verdict.value)]


def _table(judgement: SelftestJudgement) -> list[str]:
    rows = cells(judgement)
    return aligned([*HEADINGS, *rows], names=4) if rows else []


def wrong_lines(judgement: SelftestJudgement) -> Iterator[str]:
    """Why a pass is wrong, at the first look and at the second."""
    wrong = [outcome for outcome in judgement.outcomes if not outcome.right]
    for outcome in wrong[:MOST_REASONS]:
        yield f"{_place(outcome)}: {outcome.reason}"
    if len(wrong) > MOST_REASONS:
        yield f"and {len(wrong) - MOST_REASONS} more; --json has them all"


def _place(outcome: Outcome) -> str:
    again = ", second look" if outcome.again else ""
    on = f" on rank {outcome.ranks[0]}" if len(outcome.ranks) == 1 else ""
    return f"wrong in pass {outcome.number}{again} ({outcome.title}{on})"


def rate_lines(judgement: SelftestJudgement) -> list[str]:
    """Error rates of first looks, each with the bound that so few trials leave."""
    if not judgement.outcomes:
        return []
    others = _rate(judgement.others_named, "ranks beside the faulty ones")
    lines = [f"False alarms: {_rate(judgement.false_alarms, 'healthy passes')}; {others}."]
    if judgement.missed.trials:
        lines.append(
            f"Missed: {_rate(judgement.missed, 'faults')}. Wrong class: {_rate(judgement.wrong_class, 'named')}; "
            f"no class: {judgement.no_class}."
        )
        lines.append(f"Bounds are exact (Clopper-Pearson), with {100 * judgement.missed.confidence:g} % confidence.")
    lines += [f"{judgement.unclear} healthy passes were too noisy for a verdict."] if judgement.unclear else []
    if judgement.largest_difference is not None:
        points = 100 * judgement.largest_difference
        lines.append(f"Predicted (pred.) and measured (meas.) loss differ by {points:.1f} points at most.")
    if judgement.first_cause_s is not None:
        lines.append(f"From the begin of the first pass to what causes are told by: {judgement.first_cause_s:.1f} s.")
    return lines


def _rate(rate: Rate, what: str) -> str:
    if not rate.trials:
        return f"no {what}"
    return f"{rate.count} of {rate.trials} {what} (at most {100 * rate.at_most:.1f} %)"


def _ending(record: Selftest, saved: str | None) -> Iterator[str]:
    first = [played for played in record.played if not played.again]
    healthy = sum(played.row == HEALTHY for played in first)
    yield (
        f"{len(first)} passes planned, {healthy} of them healthy; {len(record.passes)} finished in "
        f"{record.duration_s:.0f} s. --seed {record.seed} draws the same ranks."
    )
    if record.skipped:
        yield f"Skipped: {'; '.join(f'{skip.what} ({skip.reason})' for skip in record.skipped)}."
    busy = record.node.cpu_busy_before
    if record.plan.backend == "gloo" and busy is not None and busy > BUSY_HOST:
        yield f"The host was {percent(busy)} busy before the start: ranks on cores that others use get other results."
    yield "Faults were played on purpose: this says nothing about the node, and much about the tool on it."
    if saved is not None and saved != str(STDIN):
        yield f"Saved: {saved}"

"""The report that people read: worst news first, every number with a unit and what it is compared with.

Pure: a run and its judgement in, lines out. Fits 80 columns, or those of a terminal; ids are never shortened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpubalance.analysis.facts import AttemptFacts, Facts
from gpubalance.checks.against import day_of
from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.links import COMMUNICATION
from gpubalance.checks.verdict import Judgement, Verdict
from gpubalance.record.run import Run
from gpubalance.record.untrusted import STDIN
from gpubalance.reports.collective_lines import bandwidth_lines
from gpubalance.reports.experiment_lines import experiment_lines
from gpubalance.reports.fold import WIDTH, Line, paragraph, put_together
from gpubalance.reports.header import header_lines
from gpubalance.reports.limits import limit_lines
from gpubalance.reports.link_lines import link_lines
from gpubalance.reports.rank_table import rank_lines
from gpubalance.reports.workload_lines import heat_lines, throughput_lines

MOST_FINDINGS = 40
"""Of thousands of ranks may come thousands of findings; the worst stand first."""
WORDS = {Verdict.PASS: "PASS", Verdict.WARN: "WARN", Verdict.FAIL: "FAIL", Verdict.INCONCLUSIVE: "NO VERDICT"}


def report_lines(run: Run, judgement: Judgement, saved: str | None, width: int = WIDTH) -> list[Line]:
    """The whole report. `saved` is the record's file; `-`, where it came from standard input, is none to speak of."""
    facts = judgement.facts
    sections = [
        [paragraph(line) for line in header_lines(run)],
        _verdict_lines(judgement),
        [paragraph(line) for line in _score_lines(judgement)],
        [paragraph(line, " " * 7) for line in rank_lines(run, facts)],
        [paragraph(line) for line in throughput_lines(run, facts)],
        [paragraph(line) for line in (*bandwidth_lines(run, facts.bandwidth), *experiment_lines(run))],
        [paragraph(line) for line in link_lines(run, facts)],
        [paragraph(line) for line in _limits_lines(run, facts, saved)],
    ]
    return put_together(sections, width)


def _verdict_lines(judgement: Judgement) -> list[Line]:
    word = WORDS[judgement.verdict]
    lines = [paragraph(f"{word}  {judgement.sentence}", " " * (len(word) + 2), judgement.verdict.value)]
    shown = [f for f in judgement.findings if f.state in (State.FAIL, State.UNKNOWN, State.WARN, State.INFO)]
    for finding in shown[:MOST_FINDINGS]:
        repeated = finding.message == judgement.sentence
        lines += _finding_lines(finding, with_message=not repeated)
    states = Counter(finding.state.value for finding in shown[MOST_FINDINGS:])
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    return lines + ([paragraph(f"      and more findings: {counts} (all: report --to html)")] if counts else [])


def _finding_lines(finding: Finding, *, with_message: bool) -> Iterator[Line]:
    """Who, what speaks for it, what it is held against, what to do; indented below the verdict."""
    indent = " " * 6
    if with_message:
        yield paragraph(f"{indent}{finding.state.value}: {finding.message}")
    if finding.subject:
        yield paragraph(f"{indent}{finding.subject}")
    yield from (paragraph(f"{indent}- {text}", f"{indent}  ") for text in finding.evidence)
    if finding.expected:
        yield paragraph(f"{indent}expected: {finding.expected}")
    if finding.next_step:
        yield paragraph(f"{indent}Next: {finding.next_step}.")


def _score_lines(judgement: Judgement) -> list[str]:
    facts = judgement.facts
    first = facts.first
    if first is None:
        return []
    balance = first.balance
    alone = len(first.device_of_rank) == 1
    bound = " or more (communication-bound)" if balance.communication_bound else ""
    score = f"balance {balance.score:.1f}{bound}"
    link = "not measured" if balance.link is None else f"{balance.link:.1f}"
    factors = f"link {link}   persistent {balance.persistent:.1f}   transient {balance.transient:.1f}"
    interval = f"95 % interval {balance.low:.1f} to {balance.high:.1f}"
    lines = [f"{score}   {factors}"]
    if not alone:
        lines.append(f"lost {max(0.0, balance.lost_ms):.2f} of {balance.step_ms:.2f} ms a step   {interval}")
    lines.append(_sub_scores(judgement, first))
    return lines


def _sub_scores(judgement: Judgement, first: AttemptFacts) -> str:
    """Each sub-score with a state of its own: the worst of the checks that look at it."""
    facts = judgement.facts
    time = min(100.0, first.balance.persistent * first.balance.transient / 100)
    scores = (
        ("time", time, ("straggler", "transient")),
        ("utilization", facts.utilization.score, ("level", "too_small")),
        ("memory", facts.memory.score, ("memory_skew", "leaked_context")),
        ("communication", facts.links.score if facts.links else None, COMMUNICATION),
    )
    return ", ".join(
        f"{name} {score:.1f} {_state(judgement, ids)}" if score is not None else f"{name} not measured"
        for name, score, ids in scores
    )


def _state(judgement: Judgement, ids: tuple[str, ...]) -> str:
    """Findings come worst first, so the first one decides; no finding at all is not judged."""
    return next((finding.state.value for finding in judgement.findings if finding.id in ids), "not judged")


def _limits_lines(run: Run, facts: Facts, saved: str | None) -> list[str]:
    lines: list[str] = []
    first = facts.first
    lines += limit_lines(first) if first is not None else []
    lines += heat_lines(facts)
    reasons = [f"{skip.what} ({skip.reason})" for skip in run.skipped if skip.reason != "not asked for"]
    unasked = [skip.what for skip in run.skipped if skip.reason == "not asked for"]
    reasons += [f"{', '.join(unasked)} (not asked for)"] if unasked else []
    health = run.samples.health
    if health is not None and health.xid_missing is not None:
        reasons.append(f"Xid events ({health.xid_missing})")
    missing = [facts.utilization.missing, facts.memory.missing]
    reasons += [
        f"{name} ({why})" for name, why in zip(("utilization score", "memory score"), missing, strict=True) if why
    ]
    if reasons:
        lines.append(f"Skipped: {'; '.join(reasons)}.")
    if run.injected:
        lines.append(f"Injected on purpose: {', '.join(run.injected)}. This run says nothing about the node.")
    if run.against is not None:
        how = f" ({counted(len(run.against.runs), 'run')})" if run.against.runs else ", which gave no run"
        day = day_of(run.against)
        lines.append(f"Held against {run.against.label}{how} on {day}; a report shows that judgement as it was made.")
    if saved != str(STDIN):
        lines.append(f"Saved: {saved}" if saved else "Not saved.")
    return lines

"""One line as Nagios, Icinga and their kin read it: state, sentence, and numbers behind a bar.

    GPUBALANCE OK - node can train evenly: balance 98.2, ... | 'balance'=98.2;;;0;100 'step'=10.86ms;;;0

The sentence holds no bar, which would begin the numbers; a number that was not measured is not there.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpubalance.analysis.balance import Balance
from gpubalance.checks.finding import State
from gpubalance.checks.verdict import Verdict
from gpubalance.reports.printable import printable
from gpubalance.reports.record_parts import AnyJudgement, Record, balance_of, count_states, rehearsal

WORDS = {Verdict.PASS: "OK", Verdict.WARN: "WARNING", Verdict.FAIL: "CRITICAL", Verdict.INCONCLUSIVE: "UNKNOWN"}

COUNTED = {"fail": State.FAIL, "not_measured": State.UNKNOWN, "warn": State.WARN}
"""Label -> findings that are counted under it."""


def nagios_text(record: Record, judgement: AnyJudgement) -> str:
    """The line."""
    staged = rehearsal(record)
    sentence = judgement.sentence if staged is None else f"{judgement.sentence} ({staged}; says nothing about the node)"
    shown = printable(sentence).replace("|", "/")
    return f"GPUBALANCE {WORDS[judgement.verdict]} - {shown} | {' '.join(_numbers(record, judgement))}\n"


def _numbers(record: Record, judgement: AnyJudgement) -> Iterator[str]:
    """Each as 'label'=value[unit];warn;critical;min;max, without ends that are empty."""
    balance = balance_of(judgement)
    if balance is not None:
        yield from _scores(record, balance)
    states = count_states(judgement)
    for label, state in COUNTED.items():
        yield f"'{label}'={states[state]};;;0"
    yield f"'duration'={record.duration_s:g}s;;;0"


def _scores(record: Record, balance: Balance) -> Iterator[str]:
    """`--min-score` is the critical range of the balance: alert below it."""
    gate = record.settings.get("min_score")
    critical = f"{gate.value:g}:" if gate is not None and isinstance(gate.value, int | float) else ""
    yield f"'balance'={balance.score:.2f};;{critical};0;100"
    yield f"'persistent'={balance.persistent:.2f};;;0;100"
    yield f"'step'={balance.step_ms:.4g}ms;;;0"
    yield f"'lost'={max(0.0, balance.lost_ms):.4g}ms;;;0"

"""`gpubalance verdict`: what the last real run said of this node, without measuring anything. Imports nothing heavy, so
that a scheduler can ask before every job.
"""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gpubalance.record.history import LastVerdict

WORDS = {"pass": "PASS", "warn": "WARN", "fail": "FAIL", "inconclusive": "NO VERDICT"}
AHEAD_S = 1.0
"""Times of records are rounded; what lies further in the future was written under another clock."""


@dataclass(frozen=True)
class Answer:
    """What is known of this node now."""

    last: LastVerdict | None
    age_s: float | None
    stale: str | None
    """Why the last verdict no longer counts, or why there is none."""
    others: tuple[LastVerdict, ...] = ()
    """Older verdicts, of the other kind, that have not aged out."""

    @property
    def exit_code(self) -> int:
        """That of the run, or 3."""
        return 3 if self.last is None or self.stale is not None else self.last.exit_code


def verdict_command(
    max_age: Annotated[str, typer.Option(metavar="TIME", help="Older ones are no verdict: 90s, 30m, 6h.")] = "6h",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """The last verdict of bench or probe on this node, with that run's exit code; 3 when there is none or it is stale.

    Example: gpubalance verdict --max-age 6h || exit 1
    """
    from gpubalance.cli.stdout import write_text
    from gpubalance.settings import parse_duration

    limit_s = parse_duration(max_age)
    answer = answer_of(limit_s, datetime.now(timezone.utc))
    write_text(answer_json(answer) if json else answer_text(answer))
    return answer.exit_code


def answer_of(limit_s: float, now: datetime) -> Answer:
    """What the state folder says of this host at that time."""
    from gpubalance.record.history import load_last_verdicts, state_home

    home = state_home(os.environ)
    if home is None:
        return Answer(None, None, "there is no state folder: neither XDG_STATE_HOME nor HOME is set")
    try:
        found = load_last_verdicts(home, socket.gethostname())
    except ValueError as error:
        return Answer(None, None, str(error))
    if not found:
        return Answer(None, None, "no run of bench or probe has been kept on this host")
    last, *older = found
    others = tuple(each for each in older if _stale(_age_s(each, now), limit_s) is None)
    age_s = _age_s(last, now)
    return Answer(last, age_s, _stale(age_s, limit_s), others)


def _age_s(last: LastVerdict, now: datetime) -> float:
    return (now - last.ended).total_seconds()


def _stale(age_s: float, limit_s: float) -> str | None:
    if age_s < -AHEAD_S:
        return f"it lies {span(-age_s)} in the future: the clock was set back"
    return f"it is {span(age_s)} old, at most {span(limit_s)} counts" if age_s > limit_s else None


def answer_text(answer: Answer) -> str:
    """The verdict line, and below it when and of what."""
    from gpubalance.reports.printable import printable

    last = answer.last
    if last is None:
        return f"NO VERDICT  {printable(answer.stale or '')}\n"
    said = f"{WORDS[last.verdict]}  {last.sentence}"
    lines = [said] if answer.stale is None else [f"NO VERDICT  {answer.stale}", f"it said: {said}"]
    ago = f", {span(answer.age_s)} ago" if answer.age_s is not None and answer.age_s >= 0 else ""
    lines.append(f"{last.kind} on {last.hostname} ended {last.ended_at}{ago}")
    lines += [f"about {last.scope}"] if last.scope else []
    lines += [f"record: {last.record}"] if last.record else []
    lines += [f"before it, {o.kind} said {WORDS[o.verdict]}  {o.sentence}" for o in answer.others]
    return "".join(f"{printable(line)}\n" for line in lines)


def answer_json(answer: Answer) -> str:
    """One strict JSON document; verdict is null when there is none that counts."""
    import json

    counts = answer.last is not None and answer.stale is None
    document = {
        "schema_version": 1,
        "verdict": answer.last.verdict if counts and answer.last else None,
        "exit_code": answer.exit_code,
        "age_s": answer.age_s,
        "stale": answer.stale,
        "last": asdict(answer.last) if answer.last else None,
        "others": [asdict(other) for other in answer.others],
    }
    return json.dumps(document, allow_nan=False, ensure_ascii=True) + "\n"


def span(seconds: float) -> str:
    """45 s, 12 min, 2.5 h, 3.1 days."""
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"

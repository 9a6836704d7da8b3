"""Which failure came first, when one rank's failure makes all others fail.

The rank that raises in a collective is nearly always a victim: its peer went away. The order of exits and even the
order of messages says nothing. First cause is, in this order: the earliest error in a rank's own work; a rank that
was killed or left without a word; the rank that did not enter the collective which the others wait in.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from gpubalance.launch.absent import absent_words, find_absent, stalled_words, together_words
from gpubalance.launch.rank_state import RankState
from gpubalance.record.hang import HangReport
from gpubalance.record.job import Job
from gpubalance.record.run import RunError

DETAIL_CHARACTERS = 4000

HINTS = {
    signal.SIGBUS: "usually /dev/shm is full",
    signal.SIGKILL: "by hand, by a scheduler, or by the kernel when memory ran out",
    signal.SIGABRT: "a library gave up; NCCL's watchdog does so when a peer is gone",
}


def find_first_cause(
    states: Sequence[RankState],
    job: Job,
    stalled_after_s: float | None,
    *,
    oom_killed: bool = False,
    hang: HangReport | None = None,
) -> list[RunError]:
    """All errors of a crew, the first cause in front and marked. [] when nothing went wrong.

    `hang` is what was gathered of ranks that are still there; a stopped process is named by it.
    `oom_killed` says that the kernel killed somebody of this control group for lack of memory meanwhile.
    """
    own = sorted((s for s in states if s.error and s.error["where"] == "work"), key=_time)
    gone = [s for s in states if s.error is None and s.exit_code is not None and not s.said_bye]
    aborted = [s for s in gone if _gave_up_waiting(s, states)]
    victims = sorted((s for s in states if s.error and s.error["where"] != "work"), key=_time)
    errors = [_raised(s, job) for s in own] + [_left(s, job, oom_killed) for s in gone if s not in aborted]
    if stalled_after_s is not None and not errors and not aborted:
        errors += _stalled(states, job, stalled_after_s, hang)
    if not errors and (victims or aborted):
        errors += _behind(states, [*victims, *aborted], job, hang)
    errors += [_raised(s, job) for s in victims] + [_left(s, job, oom_killed) for s in aborted]
    return [error.model_copy(update={"first_cause": index == 0}) for index, error in enumerate(errors)]


def _gave_up_waiting(state: RankState, states: Sequence[RankState]) -> bool:
    """NCCL's watchdog aborts a rank that waits too long: who has done less and still lives is whom it waited for."""
    if state.exit_code != -signal.SIGABRT:
        return False
    return any(o.progress < state.progress and o.exit_code is None and o.error is None for o in states)


def _time(state: RankState) -> float:
    assert state.error is not None
    return float(state.error["t_s"])


def _raised(state: RankState, job: Job) -> RunError:
    event = state.error or {}
    return RunError(
        kind=event["kind"],
        where=event["where"],
        message=event["message"],
        rank=state.rank,
        phase=event["phase"],
        attempt=job.attempt,
        t_s=event["t_s"],
        detail=(event.get("detail") or "")[-DETAIL_CHARACTERS:] or None,
    )


def _left(state: RankState, job: Job, oom_killed: bool) -> RunError:  # noqa: FBT001
    code = state.exit_code or 0
    if code < 0:
        name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
        hint = HINTS.get(signal.Signals(-code)) if name.startswith("SIG") else None
        if oom_killed and code == -signal.SIGKILL:
            hint = "the kernel killed it because memory ran out"
        kind, message = "killed", f"killed by {name}" + (f" ({hint})" if hint else "")
    else:
        kind, message = "exited", f"left with exit code {code} and without a word"
    return RunError(
        kind=kind, where="work", message=message, rank=state.rank, phase=state.phase, attempt=job.attempt,
        detail=last_output(job, state.rank),
    )  # fmt: skip


def _stalled(states: Sequence[RankState], job: Job, after_s: float, hang: HangReport | None) -> list[RunError]:
    """Whoever is stopped or has done least is whom the others wait for; when all are level, nobody is named."""
    waiting = [state for state in states if not state.said_bye]
    absent = find_absent(states, hang)
    if not absent:
        text, phase = together_words(waiting, after_s), waiting[0].phase
        return [RunError(kind="stalled", where="collective", message=text, phase=phase, attempt=job.attempt)]
    if len(waiting) == 1:
        words, rank = stalled_words(waiting[0], job, after_s, hang), None if job.crew == "node" else waiting[0].rank
        return [_missing(waiting[0], job, "stalled", words).model_copy(update={"rank": rank})]
    return [_missing(s, job, "stalled", absent_words(s, states, hang)) for s in absent]


def _behind(
    states: Sequence[RankState], victims: Sequence[RankState], job: Job, hang: HangReport | None
) -> list[RunError]:
    """Only collectives failed: name who did not enter the one that the victims were in, if there is such a rank."""
    furthest = max(state.progress for state in victims)
    absent = [state for state in states if state.progress < furthest and not state.said_bye and state.error is None]
    return [_missing(state, job, "absent", absent_words(state, states, hang)) for state in absent]


def _missing(state: RankState, job: Job, kind: str, message: str) -> RunError:
    return RunError(
        kind=kind, where="work", message=message, rank=state.rank, phase=state.phase, attempt=job.attempt,
        detail=last_output(job, state.rank),
    )  # fmt: skip


def last_output(job: Job, rank: int) -> str | None:
    """The last lines that a rank printed."""
    try:
        text = job.output_path(rank).read_text(errors="replace")
    except OSError:
        return None
    return text[-DETAIL_CHARACTERS:].strip() or None

"""Says of a rank that made no progress what it did not do, and what its process does instead."""

from __future__ import annotations

from collections.abc import Sequence

from gpubalance.launch.rank_state import RankState
from gpubalance.record.hang import HangReport, RankHang, is_halted, process_words
from gpubalance.record.job import Job

NODE_PROCESS = "the process that sees all devices"


def find_absent(states: Sequence[RankState], hang: HangReport | None) -> list[RankState]:
    """Whom the others wait for: ranks that somebody stopped, else those that have done least; [] when all are level
    and none is stopped, so that nobody can be named.
    """
    waiting = [state for state in states if not state.said_bye]
    halted = {rank.rank for rank in hang.ranks if is_halted(rank)} if hang is not None else set()
    stopped = [state for state in waiting if state.rank in halted]
    if stopped:
        return stopped
    least = min(state.progress for state in waiting)
    behind = [state for state in waiting if state.progress == least]
    return behind if len(behind) < len(waiting) or len(waiting) == 1 else []


def absent_words(state: RankState, states: Sequence[RankState], hang: HangReport | None) -> str:
    """The sentence without its subject: `did not enter all_reduce 412 of ddp: its process is stopped (state T)`."""
    witness = witness_of(hang, state.rank)
    doing = "" if witness is None else f": {process_words(witness)}"
    if witness is not None and witness.python_at is not None:
        doing += f", in {witness.python_at}"
    return _missed(state, max(states, key=lambda other: other.progress)) + doing


def _missed(state: RankState, furthest: RankState) -> str:
    if state.progress == furthest.progress:
        return f"went no further than {_so_far(state)}, where all ranks are"
    if state.phases_seen < furthest.phases_seen:
        return f"went no further than {_so_far(state)}, while others have come to {_so_far(furthest)}"
    number = state.fence + 1
    return f"did not enter {furthest.collectives.get(number, 'collective')} {number} of {state.phase}"


def _so_far(state: RankState) -> str:
    if state.fence:
        return f"{state.collectives.get(state.fence, 'collective')} {state.fence} of {state.phase}"
    return state.phase.replace("after ", "the end of ")


def stalled_words(state: RankState, job: Job, after_s: float, hang: HangReport | None) -> str:
    """The sentence about a process that nobody waits for: a single rank, or the one that sees all devices."""
    witness = witness_of(hang, state.rank)
    subject = f"{NODE_PROCESS} " if job.crew == "node" else ""
    doing = "" if state.doing is None else f", {state.doing}"
    where = "" if witness is None else f": {process_words(witness)}"
    if witness is not None and witness.python_at is not None:
        where += f", in {witness.python_at}"
    return f"{subject}made no progress for {after_s:g} s in {state.phase}{doing}{where}"


def together_words(states: Sequence[RankState], after_s: float) -> str:
    """The sentence when all ranks are in the same place."""
    first = states[0]
    if first.fence == 0:
        return f"all ranks entered the same step of {_so_far(first)} and none came back within {after_s:g} s"
    return f"all ranks entered {_so_far(first)} and none came back within {after_s:g} s"


def witness_of(hang: HangReport | None, rank: int) -> RankHang | None:
    """What was gathered about one rank."""
    return next((witness for witness in hang.ranks if witness.rank == rank), None) if hang is not None else None


def with_named(hang: HangReport, named: Sequence[int | None]) -> HangReport:
    """The report with these ranks named."""
    ranks = [rank.model_copy(update={"named": rank.rank in named}) for rank in hang.ranks]
    return hang.model_copy(update={"ranks": ranks})

"""Follows a crew by its logs: feeds the progress display, enforces the deadline, and says what went wrong first.

Liveness comes from the processes themselves and from what they write, never from heartbeats. A crew ends when all
ranks said bye, when one failed (the others get a moment to say their part), or when nobody made progress for too
long.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpubalance.launch.absent import with_named
from gpubalance.launch.first_cause import find_first_cause
from gpubalance.launch.hang import gather_hang
from gpubalance.launch.rank_state import RankState
from gpubalance.node.host import oom_kills
from gpubalance.record.hang import HangReport
from gpubalance.record.job import Job
from gpubalance.record.rank_log import Event, LogTail
from gpubalance.record.run import RunError

POLL_S = 0.05
GRACE_S = 2.0
"""After the first failure the others' errors usually follow within a second; they are consequences worth keeping."""

START_STALL_S = 180.0
"""Importing torch from a cold network file system may take minutes, and says nothing meanwhile."""

HANGS = ("stalled", "absent")
"""Kinds of error that mean that a rank which still lives is waited for."""

OnEvent = Callable[[int, Event], None]


@dataclass(frozen=True)
class CrewOutcome:
    """How a crew ended: the events of each rank, and what went wrong, first cause first."""

    events: Mapping[int, list[Event]]
    errors: list[RunError]
    hang: HangReport | None = None
    """What was gathered when ranks made no progress; times on the monotonic clock."""

    @property
    def complete(self) -> bool:
        """True when every rank did everything."""
        return not self.errors


class Follower:
    """Watches one crew. `processes` are the ranks that this parent started; other parents log their ranks' deaths.

    `environment` is what they were started with, and None where no evidence of a hang is wanted. At `until_s`
    (monotonic) patience ends, whatever the ranks do.
    """

    def __init__(
        self,
        job: Job,
        processes: Mapping[int, subprocess.Popen[bytes]],
        stall_s: float,
        on_event: OnEvent,
        *,
        environment: Mapping[str, str] | None = None,
        until_s: float | None = None,
    ) -> None:
        world = len(job.slots) if job.crew == "ranks" else 1
        self.job = job
        self.states = {rank: RankState(rank) for rank in range(world)}
        self._processes = processes
        self._tails = {rank: LogTail(job.log_path(rank)) for rank in self.states}
        self._deaths = {rank: LogTail(job.death_path(rank)) for rank in self.states if rank not in processes}
        self._stall_s = stall_s
        self._on_event = on_event
        self._oom_kills = oom_kills()
        self._environment = environment
        self._until_s = until_s
        self._began_s = time.monotonic()

    def follow(self) -> CrewOutcome:
        """Return when the crew is done, has failed or stalls. Leaves killing to the caller."""
        failed_at: float | None = None
        while True:
            self.poll()
            now = time.monotonic()
            if all(state.said_bye for state in self.states.values()):
                return self.outcome(stalled=False)
            if failed_at is None and any(self._failed(state) for state in self.states.values()):
                failed_at = now
            if failed_at is not None and now - failed_at > GRACE_S:
                return self.outcome(stalled=False)
            if self._stalled(now):
                return self.outcome(stalled=True)
            time.sleep(POLL_S)

    def poll(self) -> None:
        """Read everything new, from processes first: a rank that exited has written all it ever will."""
        for rank, process in self._processes.items():
            self.states[rank].exit_code = process.poll()
        for rank, tail in self._deaths.items():
            for event in tail.read():
                self.states[rank].take(event)
        for rank, tail in self._tails.items():
            for event in tail.read():
                self.states[rank].take(event)
                self._on_event(rank, event)

    def _failed(self, state: RankState) -> bool:
        return state.error is not None or (state.exit_code is not None and not state.said_bye)

    def _stalled(self, now: float) -> bool:
        waiting = [state for state in self.states.values() if not state.said_bye]
        if self._until_s is not None and now > self._until_s:
            return True
        quiet_s = now - max(state.last_progress_s for state in waiting)
        starting = any(state.phases_seen == 0 for state in waiting)
        return quiet_s > (max(self._stall_s, START_STALL_S) if starting else self._stall_s)

    def outcome(self, *, stalled: bool) -> CrewOutcome:
        """What is known now; where ranks are waited for, with the evidence that they still give."""
        errors = self._errors(None, stalled=stalled)
        if self._environment is None or not any(error.kind in HANGS for error in errors):
            return CrewOutcome(self.events(), errors)
        states = list(self.states.values())
        hang = gather_hang(self.job, states, self._environment, self._stall_s, self._began_s)
        errors = self._errors(hang, stalled=stalled)
        named = [0] if self.job.crew == "node" else [error.rank for error in errors if error.kind in HANGS]
        return CrewOutcome(self.events(), errors, with_named(hang, named))

    def _errors(self, hang: HangReport | None, *, stalled: bool) -> list[RunError]:
        return find_first_cause(
            list(self.states.values()),
            self.job,
            stalled_after_s=self._stall_s if stalled else None,
            oom_killed=oom_kills() > self._oom_kills,
            hang=hang,
        )

    def events(self) -> dict[int, list[Event]]:
        """All events so far, by rank, without the fence lines."""
        return {rank: state.events for rank, state in self.states.items()}

"""What was found when ranks made no progress: evidence gathered while they lived, and what fresh processes showed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubalance.record.base import Record


class RankHang(Record):
    """One rank at the moment when its crew was given up."""

    rank: int
    pid: int | None
    """Null for a rank that never said hello."""
    phase: str
    """The phase it was in, or `after` the last one that it ended."""
    fence: int
    """Number of the last collective that it entered in this phase; 0 before the first."""
    collective: str | None
    """What that collective was."""
    named: bool = False
    """The others wait for this one."""
    state: str | None = None
    """The kernel's letter for its process: R runs, S sleeps, D sits in the kernel, T is stopped, t is traced."""
    state_missing: str | None = None
    stopped_by: str | None = None
    """Name of the signal that stopped it."""
    traced_by: int | None = None
    """Pid of the debugger that holds it."""
    waits_in: str | None = None
    """Function of the kernel that it sleeps in, where that can be read."""
    stack: str | None = None
    """Python's stacks of all its threads."""
    stack_missing: str | None = None
    python_at: str | None = None
    """Where its main thread is: innermost call, and innermost call of gpubalance's own code."""
    last_line: str | None = None
    """The last line of its log that is no fence."""
    warnings: list[str] = Field(default_factory=list)
    """NCCL's WARN lines that it printed."""


class BisectTrial(Record):
    """One tiny crew of fresh processes."""

    ranks: list[int]
    """Ranks of the hung crew whose devices took part."""
    switch: str | None
    """The one variable that was set differently, as NAME=VALUE; null: as is."""
    outcome: Literal["works", "hangs", "fails", "wrong", "unfinished"]
    message: str | None = None
    seconds: float
    """With start and imports."""


class Bisection(Record):
    """The search for the smallest set of devices that fails, and for a switch that cures it."""

    trials: list[BisectTrial] = Field(default_factory=list)
    repeated: bool | None = None
    """Whether fresh processes failed as well; null when that was not found out."""
    smallest: list[int] | None = None
    """The smallest failing set, by rank of the hung crew."""
    cures: list[str] = Field(default_factory=list)
    """Switches, as NAME=VALUE, each of which alone let the smallest failing set work; the most specific first."""
    left_out: str | None = None
    """Why the search did not take place, or ended early."""


class HangReport(Record):
    """The evidence of one hang."""

    attempt: int
    crew: Literal["ranks", "node"]
    t_s: float
    """When the deadline passed."""
    deadline_s: float
    """How long no rank had made progress by then."""
    gathered_in_s: float
    """What the evidence took to gather."""
    ranks: list[RankHang]
    ras: str | None = None
    """The answer of NCCL's RAS subsystem to VERBOSE STATUS."""
    ras_missing: str | None = None
    flight_recorder: list[str] = Field(default_factory=list)
    """Dumps of torch's flight recorder that were written during this run."""
    driver_silent: str | None = None
    """The NVML call that did not return meanwhile."""


def process_words(rank: RankHang) -> str:
    """State of the process, as the end of a sentence."""
    letter = rank.state
    if letter is None:
        return f"the state of its process is not known ({rank.state_missing})"
    if letter == "T":
        return f"its process is stopped (state T{f', by {rank.stopped_by}' if rank.stopped_by else ''})"
    if letter == "t":
        return f"its process is held by a debugger (state t{f', pid {rank.traced_by}' if rank.traced_by else ''})"
    words = {"R": "is running", "S": "sleeps", "D": "sits in the kernel", "Z": "is gone", "X": "is gone"}
    where = f", in {rank.waits_in}" if letter == "D" and rank.waits_in else ""
    return f"its process {words.get(letter, 'is in a state of its own')} (state {letter}{where})"


def is_halted(rank: RankHang) -> bool:
    """Somebody stopped it, or holds it in a debugger: whoever waits for it waits for ever."""
    return rank.state in ("T", "t")


def entered_words(rank: RankHang) -> str:
    """How far it came: its last collective, or its phase."""
    if rank.fence == 0:
        return rank.phase
    return f"{rank.collective or 'collective'} {rank.fence} of {rank.phase}"

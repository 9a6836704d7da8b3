"""What to try next after a hang, and what the trials so far say. Pure: results in, next trials or the end out.

As is first: what works in fresh processes was the hung ranks' own doing. Then one switch after the other over all
ranks, then pairs as they are, many disjoint ones at a time, then the switches that cured all over the first failing
pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubalance.launch.start import GLOO_INTERFACE
from gpubalance.record.hang import BisectTrial

NCCL_SWITCHES = ("NCCL_P2P_DISABLE=1", "NCCL_NVLS_ENABLE=0", "NCCL_SHM_DISABLE=1", "NCCL_CUMEM_ENABLE=0")

MOST_SPECIFIC = ("NCCL_NVLS_ENABLE=0", "NCCL_CUMEM_ENABLE=0", "NCCL_SHM_DISABLE=1", "NCCL_P2P_DISABLE=1")
"""Of several cures the one that turns off least is named. Multicast needs cuMem, so that CUMEM off turns both off; the
peer path uses cuMem where it can, so that P2P off turns that off as well.
"""


@dataclass(frozen=True)
class Trial:
    """One tiny crew: these ranks' devices, with one switch (NAME=VALUE) or as is."""

    ranks: tuple[int, ...]
    switch: str | None = None


def switches_for(backend: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """What can be switched: for gloo the interface, where the user chose one. What is set already is no change."""
    if backend == "nccl":
        return tuple(s for s in NCCL_SWITCHES if environment.get(s.split("=")[0]) != s.split("=")[1])
    chosen = environment.get(GLOO_INTERFACE)
    return (f"{GLOO_INTERFACE}=lo",) if chosen and chosen != "lo" else ()


def next_trials(world: int, switches: Sequence[str], done: Sequence[BisectTrial]) -> list[Trial]:
    """What to run at the same time now; [] when nothing more is to be learned."""
    everybody = tuple(range(world))
    as_is = _result(done, everybody, None)
    if as_is is None:
        return [Trial(everybody)]
    if not _failed(as_is):
        return []
    for switch in switches:
        if _result(done, everybody, switch) is None:
            return [Trial(everybody, switch)]
    if world == 2:
        return []
    pair = _failing_pair(done, world)
    if pair is None:
        return next((fresh for fresh in map(_as_trials, pair_rounds(world)) if not _any_done(done, fresh)), [])
    cures = _cures(done, everybody)
    return next(([Trial(pair, cure)] for cure in cures if _result(done, pair, cure) is None), [])


def pair_rounds(world: int) -> list[list[tuple[int, int]]]:
    """Every pair once, in rounds of disjoint pairs: the circle method, n - 1 rounds of n / 2 pairs."""
    seats = [*range(world), *([-1] if world % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append(sorted((min(pair), max(pair)) for pair in facing if -1 not in pair))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def smallest_failing(world: int, done: Sequence[BisectTrial]) -> list[int] | None:
    """A pair that fails as it is, else all ranks if they do, else None."""
    pair = _failing_pair(done, world)
    if pair is not None:
        return list(pair)
    as_is = _result(done, tuple(range(world)), None)
    return list(range(world)) if as_is is not None and _failed(as_is) else None


def cures_of(smallest: Sequence[int], done: Sequence[BisectTrial]) -> list[str]:
    """Switches with which the set works, the most specific first."""
    return sorted(_cures(done, smallest), key=lambda s: MOST_SPECIFIC.index(s) if s in MOST_SPECIFIC else -1)


def was_repeated(world: int, done: Sequence[BisectTrial]) -> bool | None:
    """Whether fresh processes failed over all devices; None when that trial did not end."""
    as_is = _result(done, tuple(range(world)), None)
    return None if as_is is None or as_is.outcome == "unfinished" else _failed(as_is)


def _as_trials(pairs: Sequence[tuple[int, int]]) -> list[Trial]:
    return [Trial(pair) for pair in pairs]


def _any_done(done: Sequence[BisectTrial], trials: Sequence[Trial]) -> bool:
    return any(_result(done, trial.ranks, trial.switch) is not None for trial in trials)


def _result(done: Sequence[BisectTrial], ranks: Sequence[int], switch: str | None) -> BisectTrial | None:
    return next((trial for trial in done if trial.ranks == list(ranks) and trial.switch == switch), None)


def _failed(trial: BisectTrial) -> bool:
    return trial.outcome in ("hangs", "fails", "wrong")


def _failing_pair(done: Sequence[BisectTrial], world: int) -> tuple[int, int] | None:
    pairs = [t for t in done if len(t.ranks) == 2 < world and t.switch is None and _failed(t)]
    return (pairs[0].ranks[0], pairs[0].ranks[1]) if pairs else None


def _cures(done: Sequence[BisectTrial], ranks: Sequence[int]) -> list[str]:
    return [t.switch for t in done if t.ranks == list(ranks) and t.switch is not None and t.outcome == "works"]

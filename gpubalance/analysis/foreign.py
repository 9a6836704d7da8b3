"""A run beside what nccl-tests or nvbandwidth measured: which numbers are about the same thing, and how they compare.

Rows of collectives are the same when collective, ranks, type, mode, placement and size are. Their ratio is that of the
times where both are known: nccl-tests prints bandwidths of small messages as 0.00.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpubalance.analysis.foreign_copies import pair_copies
from gpubalance.analysis.foreign_pairs import PLACEMENT_WORDS, Pair, Unpaired, What
from gpubalance.record.foreign import CollectiveTest, Foreign
from gpubalance.record.run import Run
from gpubalance.record.timings import CollectiveRow

SUMS = (None, "sum")
"""What a run reduces with."""


@dataclass(frozen=True)
class Unlike:
    """Something under which the two did not measure alike."""

    what: str
    theirs: str
    ours: str
    blocking: bool
    """True when the numbers cannot be compared because of it."""


@dataclass(frozen=True)
class ForeignComparison:
    """A run beside a log."""

    tool: str
    run_started: str
    pairs: tuple[Pair, ...]
    unpaired: tuple[Unpaired, ...]
    unlike: tuple[Unlike, ...]
    complete: bool
    """False when the log breaks off."""
    wrong: tuple[str, ...]
    """Rows of either side with wrong elements."""
    remarks: tuple[str, ...]

    @property
    def blocking(self) -> tuple[Unlike, ...]:
        """Why they cannot be compared; empty when they can."""
        return tuple(each for each in self.unlike if each.blocking)


def compare_foreign(run: Run, log: Foreign) -> ForeignComparison:
    """Hold a run beside a log. Pure."""
    theirs, ours = _their_rows(log.tests), _our_rows(run)
    copies, no_copies = pair_copies(run, log) if log.copies else ([], [])
    return ForeignComparison(
        tool=log.tool,
        run_started=run.started_at,
        pairs=(*_row_pairs(theirs, ours), *copies),
        unpaired=(*(_unpaired_rows(theirs, ours) if log.tests else ()), *no_copies),
        unlike=tuple(_unlike(run, log)),
        complete=log.complete and all(test.complete for test in log.tests),
        wrong=(*_their_wrong(log.tests), *_our_wrong(run.collectives)),
        remarks=tuple(dict.fromkeys(_remarks(run, log))),
    )


@dataclass(frozen=True)
class _Value:
    bandwidth: float
    time_us: float | None
    repeats: int = 1


def _their_rows(tests: Iterable[CollectiveTest]) -> dict[What, _Value]:
    """Several runs of one log: the median of each row."""
    found: dict[What, list[_Value]] = defaultdict(list)
    for test in tests:
        for row in test.rows:
            if row.redop not in SUMS:
                continue
            name = test.collective or "a collective that the log does not name"
            what = What(name, test.ranks, row.dtype, test.mode, row.placement, row.size_bytes)
            found[what].append(_Value(row.bus_bandwidth_gb_per_s, row.time_us))
    return {what: _median(values) for what, values in found.items()}


def _median(values: Sequence[_Value]) -> _Value:
    times = [value.time_us for value in values if value.time_us is not None]
    time_us = statistics.median(times) if len(times) == len(values) else None
    return _Value(statistics.median(value.bandwidth for value in values), time_us, len(values))


def _our_rows(run: Run) -> dict[What, _Value]:
    """By the host's clock where the run has it, which is what nccl-tests reads; bandwidths follow from the time."""
    found = {}
    for row in run.collectives:
        if row.backend != run.plan.backend:  # measured for another purpose than to compare
            continue
        time_us = row.host_time_us or row.time_us
        bandwidth = row.bus_bandwidth_gb_per_s * row.time_us / time_us if time_us > 0 else row.bus_bandwidth_gb_per_s
        what = What(row.collective, row.ranks, row.dtype, row.mode, row.placement, row.size_bytes)
        found[what] = _Value(bandwidth, time_us)
    return found


def _row_pairs(theirs: Mapping[What, _Value], ours: Mapping[What, _Value]) -> Iterator[Pair]:
    """In the order of the run."""
    for what, mine in ours.items():
        other = theirs.get(what)
        if other is not None and what.size_bytes > 0:
            yield Pair(
                metric="busbw", what=what, place=what.collective, theirs=other.bandwidth, ours=mine.bandwidth,
                theirs_us=other.time_us, ours_us=mine.time_us, repeats=other.repeats,
            )  # fmt: skip


def _unpaired_rows(theirs: Mapping[What, _Value], ours: Mapping[What, _Value]) -> Iterator[Unpaired]:
    for side, own, others in (("log", theirs, ours), ("run", ours, theirs)):
        reasons = Counter((what.collective, _reason(what, list(others), side)) for what in own if what not in others)
        empty = [what for what in own if what in others and not what.size_bytes]
        reasons += Counter((what.collective, "0 bytes a rank") for what in empty)
        for (collective, reason), number in reasons.items():
            yield Unpaired(side, collective, number, reason)


def _reason(what: What, others: list[What], side: str) -> str:
    """The first thing by which nothing of the other side is left, in words that do not depend on the side."""
    other = "run" if side == "log" else "log"
    for name, word in _ASPECTS:
        left = [each for each in others if getattr(each, name) == getattr(what, name)]
        if not left:
            have = list(dict.fromkeys(str(word(getattr(each, name))) for each in others))
            if name in ("collective", "size_bytes") or not have:
                return f"the {other} has no {'row of it' if name == 'collective' else 'such size'}"
            return f"{word(getattr(what, name))} in the {side}, {' and '.join(have)} in the {other}"
        others = left
    return f"the {other} has no such row"


def _ranks_word(ranks: int | None) -> str:
    if ranks is None:
        return "an unknown number of ranks"
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


_ASPECTS = (
    ("collective", str),
    ("ranks", _ranks_word),
    ("dtype", str),
    ("mode", lambda mode: f"{mode} mode"),
    ("placement", lambda placement: PLACEMENT_WORDS.get(placement, placement)),
    ("size_bytes", str),
)


def _unlike(run: Run, log: Foreign) -> Iterator[Unlike]:
    """Everything known of both sides that could explain a difference."""
    if run.plan.backend == "gloo":
        yield Unlike("devices", "GPUs", "CPU ranks over gloo", blocking=True)
        return
    devices = log.devices or [device for test in log.tests for device in test.devices]
    theirs, ours = _names(device.name for device in devices), _names(device.name for device in run.plan.devices)
    if theirs and theirs != ours:
        yield Unlike("GPU", theirs, ours, blocking=True)
    here = len(run.plan.devices)
    ranks = sorted({test.ranks for test in log.tests if test.ranks is not None})
    if ranks and ranks != [here]:
        yield Unlike("number of GPUs", " and ".join(map(str, ranks)), str(here), blocking=False)
    nodes = max((test.nodes or 1 for test in log.tests), default=1)
    if nodes > 1:
        yield Unlike("nodes", str(nodes), "1", blocking=True)
    yield from _other_software(run, log)
    if run.injected:
        yield Unlike("injected faults", "none", ", ".join(run.injected), blocking=False)


def _other_software(run: Run, log: Foreign) -> Iterator[Unlike]:
    loaded = (run.ranks[0].versions if run.ranks else {}).get("nccl")
    library = _names(test.nccl_version for test in log.tests)
    if log.tests and (library or "not told") != (loaded or "not known"):
        yield Unlike("NCCL library", library or "not told", loaded or "not known", blocking=False)
    if log.driver_version and log.driver_version != run.node.driver_version:
        yield Unlike("driver", log.driver_version, run.node.driver_version or "not known", blocking=False)
    names = sorted(name for name in run.node.environment if name.startswith("NCCL_") and name != "NCCL_VERSION")
    steering = [f"{name}={run.node.environment[name]}" for name in names]
    if log.tests and steering:
        yield Unlike("variables of NCCL", "not told", " ".join(steering), blocking=False)


def _names(values: Iterable[str | None]) -> str:
    return " or ".join(sorted({value for value in values if value}))


def _their_wrong(tests: Iterable[CollectiveTest]) -> Iterator[str]:
    for test in tests:
        for row in test.rows:
            if row.wrong_elements:
                place = PLACEMENT_WORDS.get(row.placement, row.placement)
                where = f"the log: {test.collective} of {row.size_bytes} bytes {place}"
                yield f"{where}: {row.wrong_elements} wrong elements"
        if test.out_of_bounds and not any(row.wrong_elements for row in test.rows):
            yield f"the log: {test.collective}: {test.out_of_bounds} values out of bounds"


def _our_wrong(rows: Iterable[CollectiveRow]) -> Iterator[str]:
    for row in rows:
        if row.wrong_elements:
            yield f"the run: {row.collective} of {row.size_bytes} bytes: {row.wrong_elements} wrong elements"


def _remarks(run: Run, log: Foreign) -> Iterator[str]:
    yield from log.remarks
    if log.copies and run.links is None and run.probes:
        yield "one GPU copies at a time, in the run all at once"
    for test in log.tests:
        yield from test.remarks
        others = sorted({row.redop or "" for row in test.rows if row.redop not in SUMS})
        if others:
            yield f"rows of {', '.join(others)} are left out: a run sums"
        if test.nccl_headers and test.nccl_version and test.nccl_headers != test.nccl_version:
            yield f"built against NCCL {test.nccl_headers}, loaded {test.nccl_version}"
        if not test.complete:
            yield f"{test.collective or 'a table'} breaks off after {len(test.rows)} values"

"""A run beside what nccl-tests or nvbandwidth measured: which numbers are about the same thing, and how they compare.

Rows of collectives are the same when collective, ranks, type, mode, placement and size are. Their ratio is that of the
times where both are known: nccl-tests prints bandwidths of small messages as 0.00.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpubalance.analysis.compare import GATED_BYTES
from gpubalance.record.foreign import IN_PLACE, CollectiveTest, CopyMatrix, Foreign, TheirDevice
from gpubalance.record.node import Device
from gpubalance.record.run import Run
from gpubalance.record.timings import CollectiveRow

COPIES = {
    "host_to_device_memcpy_ce": ("h2d", 1.0),
    "device_to_host_memcpy_ce": ("d2h", 1.0),
    "device_local_copy": ("memory_copy", 2.0),
    "device_to_device_memcpy_write_ce": ("p2p", 1.0),
}
"""Tests of nvbandwidth that a run has as well, and the factor to our way of counting: a copy within a device is read
and written, and nvbandwidth counts it once. Its write test copies from the device of the row to that of the column,
by the engine of the former (testcases_ce.cpp), as a run does; the arrow in its heading points the other way."""

PLACEMENT_WORDS = {"in_place": "in place", "out_of_place": "out of place"}


@dataclass(frozen=True)
class What:
    """What a row of a collective is about."""

    collective: str
    ranks: int | None
    dtype: str
    mode: str
    placement: str
    size_bytes: int


@dataclass(frozen=True)
class Pair:
    """One number of both: GB/s, with the time of one operation in us where it is known."""

    metric: str
    """busbw, h2d, d2h, memory_copy or p2p."""
    what: What | None
    place: str
    """GPU 3 by its NVML index, or all_reduce for a row of a collective."""
    theirs: float
    ours: float
    theirs_us: float | None = None
    ours_us: float | None = None
    repeats: int = 1
    """How many rows of the log it is the median of."""

    @property
    def ratio(self) -> float | None:
        """Ours / theirs as bandwidths; None where the log's number is 0."""
        if self.theirs_us and self.ours_us:
            return self.theirs_us / self.ours_us
        return self.ours / self.theirs if self.theirs > 0 else None

    @property
    def gated(self) -> bool:
        """False for what is shown and never judged: small collectives, and those replayed from a graph."""
        return self.what is None or (self.what.size_bytes >= GATED_BYTES and self.what.mode == "eager")


@dataclass(frozen=True)
class Unpaired:
    """Numbers of one side only, and why."""

    side: str
    """log or run."""
    what: str
    count: int
    reason: str


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
    copies, no_copies = _copies(run, log) if log.copies else ([], [])
    return ForeignComparison(
        tool=log.tool,
        run_started=run.started_at,
        pairs=(*_row_pairs(theirs, ours), *copies),
        unpaired=(*(_unpaired_rows(theirs, ours) if log.tests else ()), *no_copies),
        unlike=tuple(_unlike(run, log)),
        complete=all(test.complete for test in log.tests),
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
            name = test.collective or "a collective that the log does not name"
            what = What(name, test.ranks, row.dtype, test.mode, row.placement, row.size_bytes)
            found[what].append(_Value(row.bus_bandwidth_gb_per_s, row.time_us))
    return {what: _median(values) for what, values in found.items()}


def _median(values: Sequence[_Value]) -> _Value:
    times = [value.time_us for value in values if value.time_us is not None]
    time_us = statistics.median(times) if len(times) == len(values) else None
    return _Value(statistics.median(value.bandwidth for value in values), time_us, len(values))


def placement_of(row: CollectiveRow) -> str:
    """Runs that do not tell the placement of a row measured in place."""
    return str(getattr(row, "placement", None) or IN_PLACE)


def _our_rows(run: Run) -> dict[What, _Value]:
    """By the host's clock where the run has it, which is what nccl-tests reads; bandwidths follow from the time."""
    found = {}
    for row in run.collectives:
        if row.backend != run.plan.backend:  # measured for another purpose than to compare
            continue
        time_us = float(getattr(row, "host_time_us", None) or row.time_us)
        bandwidth = row.bus_bandwidth_gb_per_s * row.time_us / time_us if time_us > 0 else row.bus_bandwidth_gb_per_s
        what = What(row.collective, row.ranks, row.dtype, row.mode, placement_of(row), row.size_bytes)
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


def _copies(run: Run, log: Foreign) -> tuple[list[Pair], list[Unpaired]]:
    pairs: list[Pair] = []
    missing: list[Unpaired] = []
    places, ours = _columns(run.plan.devices, log.devices), _our_copies(run)
    for copy in log.copies:
        metric, factor = COPIES.get(copy.test, ("", 1.0))
        found = list(_copy_pairs(run, copy, metric, factor, places, ours))
        pairs += found
        if not found:
            missing.append(Unpaired("log", copy.test, 1, "the run has no such copy"))
    return pairs, missing


Ends = tuple[int | None, int]
"""Indices of devices: from which one (None: the host) to which one."""


def _our_copies(run: Run) -> dict[tuple[str, Ends], float]:
    """Copies of one device alone, where the links phase made them; else those of all devices at the same time."""
    found: dict[tuple[str, Ends], float] = {}
    for probe in run.probes:
        ends = (None, probe.device)
        found["h2d", ends] = probe.host_to_device_gb_per_s
        found["d2h", ends] = probe.device_to_host_gb_per_s
        found["memory_copy", ends] = probe.memory_copy_gb_per_s
    links = getattr(run, "links", None)
    for device in links.devices if links is not None else ():
        alone = (device.to_device_gb_per_s, device.from_device_gb_per_s, device.memory_copy_gb_per_s)
        for metric, value in zip(("h2d", "d2h", "memory_copy"), alone, strict=True):
            if value is not None:
                found[metric, (None, device.device)] = value
    for peer in links.peers if links is not None else ():
        if peer.looks_gb_per_s:
            found["p2p", (peer.source, peer.target)] = statistics.median(peer.looks_gb_per_s)
    return found


def _copy_pairs(
    run: Run,
    copy: CopyMatrix,
    metric: str,
    factor: float,
    places: Sequence[int | None],
    ours: Mapping[tuple[str, Ends], float],
) -> Iterator[Pair]:
    for (which, (source, target)), value in ours.items():
        if which != metric:
            continue
        row = 0 if source is None else places[source]
        theirs = _cell(copy, row, places[target])
        if theirs is not None:
            names = [_device_name(run, index) for index in (source, target) if index is not None]
            yield Pair(metric=metric, what=None, place=" to ".join(names), theirs=factor * theirs, ours=value)


def _cell(copy: CopyMatrix, row: int | None, column: int | None) -> float | None:
    if row is None or column is None or row >= len(copy.values) or column >= len(copy.values[row]):
        return None
    return copy.values[row][column]


def _device_name(run: Run, index: int) -> str:
    nvml_index = run.plan.devices[index].nvml_index
    return f"device {index}" if nvml_index is None else f"GPU {nvml_index}"


def _columns(devices: Sequence[Device], theirs: Sequence[TheirDevice]) -> list[int | None]:
    """The column of each device of the run: by PCI address where all are found, else by CUDA's number."""
    addresses = {_address(device.pci_bus_id): index for index, device in enumerate(theirs)}
    by_address = [addresses.get(_address(device.pci_bus_id)) for device in devices]
    if None not in addresses and all(index is not None for index in by_address):
        return by_address
    return [device.cuda_ordinal for device in devices]


def _address(text: str | None) -> tuple[int, ...] | None:
    """Domain, bus and device of 00000000:00:06, 0000:00:06 and 0000:00:06.0; None for what is none."""
    parts = (text or "").split(".")[0].split(":")
    try:
        return tuple(int(part, 16) for part in parts) if len(parts) == 3 else None
    except ValueError:
        return None


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


def _our_wrong(rows: Iterable[CollectiveRow]) -> Iterator[str]:
    for row in rows:
        if row.wrong_elements:
            yield f"the run: {row.collective} of {row.size_bytes} bytes: {row.wrong_elements} wrong elements"


def _remarks(run: Run, log: Foreign) -> Iterator[str]:
    yield from log.remarks
    if log.copies and getattr(run, "links", None) is None and run.probes:
        yield "one GPU copies at a time, in the run all at once"
    for test in log.tests:
        yield from test.remarks
        if test.nccl_headers and test.nccl_version and test.nccl_headers != test.nccl_version:
            yield f"built against NCCL {test.nccl_headers}, loaded {test.nccl_version}"
        if not test.complete:
            yield f"{test.collective or 'a table'} breaks off after {len(test.rows)} values"

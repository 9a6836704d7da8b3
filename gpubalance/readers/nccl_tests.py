"""Reads what nccl-tests prints, of any version, whatever else stands between its lines.

Columns are found by the header. Versions differ in it: `error` or `#wrong`, with or without `redop` and `root`, one
placement or two, per-iteration columns, a time stamp. Formats: NVIDIA/nccl-tests, src/util.cu, and src/common.cu and
src/all_reduce.cu of older versions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpubalance.errors import UsageError
from gpubalance.readers.lines import bare_lines, text_of
from gpubalance.readers.nccl_words import collective_of, dtype_of, redop_of, version_of
from gpubalance.readers.numbers import count, is_number, measured
from gpubalance.record.foreign import IN_PLACE, OUT_OF_PLACE, CollectiveTest, Foreign, TheirDevice, TheirRow

HEADER = re.compile(r"#\s*size\s+count\s+type\s(?:.*\s)?(?:cpu)?time\s+algbw\s+busbw\b.*")
UNITS = {"(B)", "(elements)", "(us)", "(GB/s)", "(%)"}
MOST_ROWS = 100_000

_TIMES = ("time", "cputime")
_RANK = re.compile(
    r"#\s*Rank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[([\w:.]+)\]\s*(.*)"
)
_SETUP = re.compile(r"#\s*nThreads?:?\s+(\d{1,6})\s+nGpus:?\s+(\d{1,6})\b.*")
_GRAPH = re.compile(r"\bgraph:\s*(\d{1,9})")
_AGGREGATED = re.compile(r"\bagg iters:\s*(\d{1,9})")
_VERSIONS = re.compile(r"#\s*nccl-tests version (\S+) nccl-headers=(\d{1,9}) nccl-library=(\d{1,9})")
_LIBRARY = re.compile(r"\bNCCL version (\d+(?:\.\d+)+)")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\S+)")
_OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,18})\b")
_STAMP = re.compile(r"\s\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
_TROUBLE = re.compile(
    r"(.*Test (?:NCCL |CUDA )?failure .*|.*: Test timeout .*|#\s*(?:error:|Out of bounds values.*FAILED).*)"
)


ALONE = "each process is a test of its own: this nccl-tests is built without MPI"


@dataclass
class _Columns:
    """What the header promises: names before the placements, and those of each placement."""

    fixed: list[str]
    groups: list[tuple[str, list[str]]]
    stamped: bool

    @property
    def width(self) -> int:
        return len(self.fixed) + sum(len(names) for _, names in self.groups)


@dataclass
class _Table:
    """One run of one program while it is read."""

    collective: str | None = None
    begun: set[str] = field(default_factory=set)
    """Kinds of lines that stand once above a table, as far as they were seen."""
    ranks: list[tuple[int, str | None, str]] = field(default_factory=list)
    """Rank, group and host of each line that lists one."""
    devices: list[TheirDevice] = field(default_factory=list)
    planned: int | None = None
    """Threads times GPUs of each, which are all ranks of one process."""
    graph: bool = False
    version: str | None = None
    library: str | None = None
    headers: str | None = None
    columns: _Columns | None = None
    rows: list[TheirRow] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    average: float | None = None
    out_of_bounds: int = 0
    complete: bool = False
    failed: bool = False
    remarks: list[str] = field(default_factory=list)


def read_nccl_tests(name: str, data: bytes) -> Foreign:
    """All tables of a log. A log that broke off gives the rows that are whole, and says so.

    Raises UsageError when there is no row in it ("no result"), or a number that nothing measures.
    """
    reader = _Reader(name)
    for number, line in bare_lines(text_of(name, data)):
        reader.take(number, line)
    tests = tuple(_finished(table) for table in reader.tables if table.rows)
    empty = [table for table in reader.tables if not table.rows]
    if not tests:
        trouble = next((text for table in reader.tables for text in table.remarks), None)
        told = f": it says {trouble!r}" if trouble else ""
        raise UsageError(f"{name}: no result in the log of nccl-tests{told}", "let the test run to its end")
    return Foreign(
        "nccl-tests",
        tests,
        version=_only([test.version for test in tests]),
        complete=not any(table.remarks or (table is reader.table and table.begun) for table in empty),
        remarks=tuple(f"{table.collective or 'a table'}: {text}" for table in empty for text in table.remarks),
    )


def _only(values: Sequence[str | None]) -> str | None:
    known = list(dict.fromkeys(value for value in values if value))
    return " or ".join(known) or None


class _Reader:
    """Line by line; tables follow each other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tables = [_Table()]
        self.rows = 0
        self.above = ""

    @property
    def table(self) -> _Table:
        return self.tables[-1]

    def take(self, number: int, line: str) -> None:
        """One line without its prefixes."""
        header = HEADER.search(line)
        if header is not None:
            self._header(header[0])
        elif "#" in line and self._about(line[line.index("#") :]):
            pass
        elif self.table.columns is not None and not self.table.complete:
            self._cells(number, line)
        else:
            self._other(line)
        if line:
            self.above = line

    def _header(self, header: str) -> None:
        if self.table.columns is not None:
            self._next()
        self.table.columns = columns_of(header, self.above)

    def _next(self) -> _Table:
        """A new table, which knows of the old one only what is said once for a whole log."""
        old = self.table
        self.tables.append(_Table(library=old.library))
        return self.table

    def _about(self, line: str) -> bool:
        """Lines that begin with #; False when the line says nothing that is needed."""
        if self._before(line) or self._units(line):
            return True
        beyond = _OUT_OF_BOUNDS.match(line)
        if beyond is not None:
            self.table.out_of_bounds += int(beyond[1])
        average = _AVERAGE.match(line)
        if average is not None:
            self.table.average = measured(average[1], f"{self.name}: average bus bandwidth")
            self.table.complete = True
            return True
        if line.startswith("# Blocking Enabled"):
            self.table.remarks.append("it waits after each operation (-z), gpubalance does not")
        return False

    def _before(self, line: str) -> bool:
        """What stands above a table; a line of its kind after the rows, or once more, begins the next one."""
        versions, setup, rank = _VERSIONS.match(line), _SETUP.match(line), _RANK.match(line)
        starting = "Collective test starting:" in line
        if not (versions or setup or rank or starting):
            return False
        kind = "version" if versions else "setup" if setup else "starting" if starting else ""
        again = kind in self.table.begun
        table = self._next() if self.table.columns is not None or again else self.table
        table.begun |= {kind} - {""}
        if starting:
            table.collective = collective_of(line)
        if versions is not None:
            table.version = versions[1]
            table.headers, table.library = version_of(int(versions[2])), version_of(int(versions[3]))
        if setup is not None:
            table.planned = int(setup[1]) * int(setup[2])
            graph, aggregated = _GRAPH.search(line), _AGGREGATED.search(line)
            table.graph = graph is not None and int(graph[1]) > 0
            if aggregated is not None and int(aggregated[1]) > 1:
                table.remarks.append(f"it groups {aggregated[1]} operations (-m), gpubalance does not")
        if rank is not None:
            table.ranks.append((int(rank[1]), rank[2], rank[3]))
            table.devices.append(TheirDevice(rank[5].strip(), rank[4]))
        return True

    def _units(self, line: str) -> bool:
        """The line below the header. Raises UsageError for a unit that is another one."""
        words = line.lstrip("#").split()
        if self.table.columns is None or not words or not words[0].startswith("(B"):
            return False
        strange = [word for word in words if word.startswith("(") and word not in UNITS]
        if strange:
            raise UsageError(f"{self.name}: a column in {strange[0]} is not known", "bandwidths are read in (GB/s)")
        return True

    def _other(self, line: str) -> None:
        table = self.table
        trouble, library = _TROUBLE.search(line), _LIBRARY.search(line)
        if trouble is not None:
            table.remarks.append(trouble[1].strip()[:200])
            table.failed = True
        if library is not None and table.library is None:
            table.library = library[1]
        if table.columns is None and "starting" not in table.begun:
            table.collective = collective_of(line) or table.collective
        elif (table.complete or table.failed) and collective_of(line) is not None:
            self._next().collective = collective_of(line)

    def _cells(self, number: int, line: str) -> None:
        """Cells of a row, or of the rest of one that a message cut in two."""
        table = self.table
        columns = table.columns
        assert columns is not None
        words = (_STAMP.sub("", line) if columns.stamped else line).split()
        if not words:
            return
        if _begins_row(words):
            table.pending = words
        elif table.pending and all(map(is_number, words)):
            table.pending += words
        else:
            self._other(line)
            return
        missing = int("redop" in columns.fixed and len(table.pending) > 3 and is_number(table.pending[3]))
        if len(table.pending) == columns.width - missing:
            self._row(f"{self.name}: line {number}", table.pending, columns, missing)
            table.pending = []

    def _row(self, where: str, words: list[str], columns: _Columns, missing: int) -> None:
        names = [name for name in columns.fixed if not (missing and name == "redop")]
        fixed = dict(zip(names, words, strict=False))
        rest = words[len(names) :]
        for placement, cells in columns.groups:
            values = dict(zip(cells, rest, strict=False))
            rest = rest[len(cells) :]
            if values["busbw"] == "N/A":
                continue
            wrong = values.get("#wrong", "N/A")
            self.table.rows.append(
                TheirRow(
                    size_bytes=count(fixed["size"], where),
                    dtype=dtype_of(fixed["type"]),
                    placement=placement,
                    time_us=measured(values["time"], where) if "time" in values else None,
                    algorithm_bandwidth_gb_per_s=measured(values["algbw"], where),
                    bus_bandwidth_gb_per_s=measured(values["busbw"], where),
                    wrong_elements=None if wrong == "N/A" else count(wrong, where),
                    redop=redop_of(fixed.get("redop")),
                )
            )
        self.rows += 1
        if self.rows > MOST_ROWS:
            raise UsageError(f"{self.name} has more than {MOST_ROWS} rows, no log of nccl-tests is so long")


def columns_of(header: str, above: str) -> _Columns:
    """Names of the columns of a line like `HEADER`. The line above tells the placement where there is only one."""
    words = [word for word in header.lstrip("#").split() if word != "timestamp"]
    starts = [index for index, word in enumerate(words) if word in _TIMES]
    ends = [*starts[1:], len(words)]
    order = [IN_PLACE] if len(starts) == 1 and "in-place" in above else [OUT_OF_PLACE, IN_PLACE]
    groups = [
        (placement, words[begin:end])
        for placement, begin, end in zip(order, starts, ends, strict=False)
        if {"algbw", "busbw"} <= set(words[begin:end])
    ]
    return _Columns(words[: starts[0]], groups, "timestamp" in header)


def _begins_row(words: Sequence[str]) -> bool:
    return (
        len(words) >= 3
        and words[0].isdecimal()
        and words[1].isdecimal()
        and words[2][0].isalpha()
        and (not is_number(words[2]))
    )


def _finished(table: _Table) -> CollectiveTest:
    ranks = _ranks(table)
    test = CollectiveTest(
        collective=table.collective,
        ranks=ranks,
        nodes=len({host for _, _, host in table.ranks}) or None,
        mode="graph" if table.graph else "eager",
        rows=tuple(table.rows),
        complete=table.complete,
        devices=tuple(table.devices),
        version=table.version,
        nccl_version=table.library,
        nccl_headers=table.headers,
        average_bus_bandwidth_gb_per_s=table.average,
        out_of_bounds=table.out_of_bounds,
        remarks=tuple(dict.fromkeys([*table.remarks, *([ALONE] if _alone(table) else [])])),
    )
    return test if test.collective is not None else replace(test, collective=_guessed(test))


def _alone(table: _Table) -> bool:
    """Whether several processes each call themselves rank 0: a program without MPI under mpirun."""
    listed = [(group, rank) for rank, group, _ in table.ranks]
    return len(set(listed)) < len(listed)


def _ranks(table: _Table) -> int | None:
    """Ranks of one communicator: of a group, where the processes were split into several."""
    if not table.ranks:
        return table.planned
    if _alone(table):
        return table.planned or 1
    groups = [group for _, group, _ in table.ranks]
    listed = groups.count(groups[0])
    return max(listed, table.planned or 0) if len(set(groups)) == 1 else listed


def _guessed(test: CollectiveTest) -> str | None:
    """Only all_reduce moves more over the bus than its algorithm says: 2(n-1)/n is above 1 from 3 ranks on."""
    larger = [r for r in test.rows if r.bus_bandwidth_gb_per_s > 1.2 * r.algorithm_bandwidth_gb_per_s > 1]
    return "all_reduce" if larger else None

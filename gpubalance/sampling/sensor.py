"""The sensor: a process of its own beside the ranks. First the node snapshot, then readings at a steady pace.

It is the only process that talks to NVML, so that a driver which hangs costs us the sensor and nothing else: the
parent abandons it and says on which call. Its log is a file of JSON lines; its orders come on standard input.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import time
from pathlib import Path

import psutil

from gpubalance.child import die_with_parent
from gpubalance.node.limits import cpu_throttling
from gpubalance.node.nvml import Nvml, open_nvml
from gpubalance.node.snapshot import take_snapshot
from gpubalance.record.rank_log import RankLog
from gpubalance.sampling.call_note import CallNote
from gpubalance.sampling.commands import Command, Commands
from gpubalance.sampling.counters import CounterLooks
from gpubalance.sampling.sources import GpuSource, HostSource, Source
from gpubalance.sampling.xid import XidListener

PROCESS_INTERVAL_S = 1.0
"""Process lists change slowly and cost more than a reading."""

COUNTERS_LIMIT_S = 1.5
"""How long the end waits for counters that are being read; below what the parent waits for the sensor."""

BUSY_WINDOW_S = 0.3
"""How long the host is watched before the run to see whether it is busy."""


class Sensor:
    """The loop: orders, ticks, and the log lines they make."""

    def __init__(self, log: RankLog, nvml: Nvml | str, interval_s: float, folder: Path, stand_in: Path | None) -> None:
        self._log = log
        self._nvml = nvml
        self._interval_s = interval_s
        self._folder = folder
        self._stand_in = stand_in
        self._source: Source | None = None
        self._xids: XidListener | None = None
        self._looks: CounterLooks | None = None
        self._columns: tuple[str, ...] = ()
        self._next_processes = 0.0
        self._missed = 0

    def run(self, commands: Commands) -> None:
        """Obey until told to stop."""
        due = time.monotonic()
        while True:
            for command in commands.wait(due - time.monotonic()):
                if command["do"] == "stop":
                    return
                self._obey(command)
            now = time.monotonic()
            if now < due:
                continue
            if self._source is not None:
                self._tick(self._source, late_ms=1000 * (now - due))
            due = self._after(due)

    def _after(self, due: float) -> float:
        """The next tick on the same grid; ticks whose time has passed are missed, not made up for."""
        skipped = int((time.monotonic() - due) / self._interval_s)
        self._missed += skipped if self._source is not None else 0
        return due + (skipped + 1) * self._interval_s

    def _obey(self, command: Command) -> None:
        if command["do"] == "begin":
            self._begin(command)
        elif self._source is not None and command["do"] == "ranks":
            self._source.set_ranks({int(rank): pid for rank, pid in command["pids"].items()})
        elif command["do"] == "edge":
            self._say_quota()
            if self._looks is not None:
                self._looks.start(command["name"])

    def _begin(self, command: Command) -> None:
        if isinstance(self._nvml, str) or not command["nvml"]:
            self._source = HostSource(command["devices"])
            return
        self._source = GpuSource(self._nvml, command["nvml"], command["devices"])
        self._looks = CounterLooks(self._folder, command["nvml"], command["devices"], self._stand_in)
        self._xids = XidListener(self._nvml, command["nvml"])
        self._log.write("xid_listener", missing=self._xids.missing)

    def _tick(self, source: Source, late_ms: float) -> None:
        begin = time.monotonic()
        rows, news = source.tick()
        self._say_columns(rows)
        for device, reasons in news.items():
            self._log.write("missing", device=device, reasons=reasons)
        for index, xid in self._xids.poll() if self._xids is not None else ():
            self._log.write("xid", nvml_index=index, xid=xid)
        self._say_failures()
        if begin >= self._next_processes:
            self._next_processes = begin + PROCESS_INTERVAL_S
            self._log.write("processes", processes=source.processes())
        rounded = [[row.get(key) for key in self._columns] for row in rows]
        cost_ms = 1000 * (time.monotonic() - begin)
        self._log.write("sample", late_ms=round(late_ms, 3), cost_ms=round(cost_ms, 3), rows=rounded)

    def _say_quota(self) -> None:
        stopped = cpu_throttling() if self._source is not None else None
        if stopped is not None:
            self._log.write("quota", periods=stopped[0], throttled=stopped[1])

    def _say_failures(self) -> None:
        for edge, reason in self._looks.failures() if self._looks is not None else ():
            self._log.write("counters_failed", edge=edge, reason=reason)

    def end(self) -> None:
        """Wait a moment for counters that are being read, and write the last line."""
        if self._looks is not None:
            self._looks.wait(COUNTERS_LIMIT_S)
        self._say_failures()
        self._say_quota()
        self._log.write("bye", missed=self._missed)

    def _say_columns(self, rows: list[dict[str, float | int | None]]) -> None:
        """The columns are those of the first tick; what a device does not have is null in its rows."""
        if not self._columns:
            self._columns = tuple(dict.fromkeys(key for row in rows for key in row))
            self._log.write("columns", columns=self._columns)


def main() -> None:
    """Run as a child of the parent whose pid is given."""
    parser = argparse.ArgumentParser(prog="python -m gpubalance.sampling.sensor", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--interval", type=float, required=True)
    parser.add_argument("--stand-in", type=Path, help="profile of a stand-in NVML, for tests and demonstrations")
    parser.add_argument("--ways", action="store_true", help="say in the snapshot how GPUs are joined as well")
    options = parser.parse_args()
    faulthandler.enable()  # a crash inside the driver's library leaves a trace of the call
    die_with_parent(options.parent)
    if options.stand_in is not None:
        from gpubalance.testing.stand_in_nvml import install

        install(options.stand_in)
    log = RankLog(options.folder / "sensor.jsonl")
    nvml = open_nvml(CallNote(options.folder / "sensor.call"))
    node = take_snapshot(nvml, psutil.cpu_percent(interval=BUSY_WINDOW_S) / 100, ways=options.ways)
    log.write("snapshot", node=node.model_dump(mode="json"))
    sensor = Sensor(log, nvml, options.interval, options.folder, options.stand_in)
    sensor.run(Commands(sys.stdin.fileno()))
    sensor.end()
    os._exit(0)  # closing NVML can hang; the kernel closes it as well


if __name__ == "__main__":
    main()

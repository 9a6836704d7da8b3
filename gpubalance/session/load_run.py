"""The active check of `probe --load`: one child a GPU, each with a deadline of its own and killed alone."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpubalance.launch.plan import busy_with
from gpubalance.launch.rank_state import RankState
from gpubalance.launch.start import end_ranks, start_ranks
from gpubalance.record.job import Job
from gpubalance.record.node import Device, Node
from gpubalance.record.probe import DeviceLoad, Load
from gpubalance.record.rank_log import LogTail
from gpubalance.record.run import Phase
from gpubalance.record.samples import Samples
from gpubalance.record.timings import DeviceProbe

DEADLINE_S = 60.0
"""A healthy GPU needs 8 s, most of it for importing torch."""

_POLL_S = 0.05


@dataclass
class _Child:
    """One GPU's process and what it has said."""

    rank: int
    process: subprocess.Popen[bytes]
    tail: LogTail
    state: RankState
    begin_s: float = field(default_factory=time.monotonic)
    end_s: float | None = None
    stalled: bool = False

    def poll(self, deadline_s: float) -> None:
        """Take what is new; kill it alone when its time is over."""
        self.state.exit_code = self.process.poll()
        for event in self.tail.read():
            self.state.take(event)
        if self.state.said_bye or self.state.exit_code is not None:
            self.end_s = time.monotonic()
        elif time.monotonic() - self.begin_s > deadline_s:
            self.stalled, self.end_s = True, time.monotonic()
            end_ranks({self.rank: self.process})


def left_alone(device: Device, node: Node, *, force: bool) -> str | None:
    """Why a GPU is not put under load, or None."""
    if "GPU_IS_LOST" in device.missing.values():
        return "it is lost"
    if device.cuda_ordinal is None:
        return "it is hidden by CUDA_VISIBLE_DEVICES"
    if device.uuid is None:
        return "its UUID could not be read"
    if device.mig_enabled:
        return "it is in MIG mode"
    busy = None if force else busy_with(device, node)
    return None if busy is None else f"it {busy}"


def run_children(job: Job, environment: Mapping[str, str], module: str, deadline_s: float) -> list[_Child]:
    """Start all, follow each to its end or its deadline, and leave no process behind."""
    processes = start_ranks(job, range(len(job.slots)), environment, module, own_store=True)
    try:
        children = [
            _Child(rank, process, LogTail(job.log_path(rank)), RankState(rank)) for rank, process in processes.items()
        ]
        while any(child.end_s is None for child in children):
            for child in children:
                if child.end_s is None:
                    child.poll(deadline_s)
            time.sleep(_POLL_S)
        for child in children:
            child.poll(deadline_s)
    finally:
        end_ranks(processes)
    return children


def load_record(
    children: list[_Child], chosen: list[int], skipped: Mapping[int, str], samples: Samples, start_s: float
) -> Load:
    """The record. `chosen` are NVML indices by rank; skipped ones come after them."""
    results = [_result(child, start_s) for child in children]
    results += [
        DeviceLoad(device=len(chosen) + place, stage="start", seconds=0.0, skipped=reason)
        for place, reason in enumerate(skipped.values())
    ]
    windows = [result.windows["load speed"] for result in results if "load speed" in result.windows]
    begin, end = min((w[0] for w in windows), default=None), max((w[1] for w in windows), default=None)
    phases = [] if begin is None else [Phase(name="load speed", attempt=0, begin_s=begin, end_s=end)]
    return Load(devices=[*chosen, *skipped], results=results, phases=phases, samples=samples)


def _result(child: _Child, start_s: float) -> DeviceLoad:
    said = {event["event"]: event for event in child.state.events}
    kind, error = _error(child)
    speed = said.get("probe")
    matmul, bits = said.get("matmul", {}), said.get("bits", {})
    measures = {key: value for key, value in (speed or {}).items() if key not in ("event", "t_s")}
    return DeviceLoad(
        device=child.rank,
        stage=said.get("stage", {}).get("stage", "start"),
        seconds=round((child.end_s or child.begin_s) - child.begin_s, 2),
        matmul_max_error=matmul.get("max_error"),
        repeats=bits.get("repeats"),
        repeats_differing=bits.get("differing"),
        output_digest=bits.get("digest"),
        speed=DeviceProbe(rank=child.rank, device=child.rank, **measures) if speed else None,
        windows=_windows(child, start_s),
        error=error,
        error_kind=kind,
    )


def _windows(child: _Child, start_s: float) -> dict[str, tuple[float, float]]:
    """Stretches that were begun and ended."""
    windows = [event for event in child.state.events if event["event"] == "window"]
    begins = {event["name"]: event["t_s"] - start_s for event in windows if event["edge"] == "begin"}
    ends = {event["name"]: event["t_s"] - start_s for event in windows if event["edge"] == "end"}
    return {name: (round(begins[name], 4), round(ends[name], 4)) for name in begins if name in ends}


def _error(child: _Child) -> tuple[str | None, str | None]:
    """Kind and text of what ended a child too early."""
    state = child.state
    if child.stalled:
        return "stalled", f"no end after {DEADLINE_S:g} s"
    if state.error is not None:
        return state.error["kind"], state.error["message"]
    if state.said_bye:
        return None, None
    code = state.exit_code or 0
    return ("killed", f"killed by signal {-code}") if code < 0 else ("exited", f"ended with {code} without a word")

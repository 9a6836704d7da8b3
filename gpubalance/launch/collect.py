"""From the ranks' log lines to records. Pure. What a rank measured before it died is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpubalance.launch.collect_links import collect_links
from gpubalance.record.job import Job
from gpubalance.record.links import Links
from gpubalance.record.rank_log import Event
from gpubalance.record.run import Phase, Skipped
from gpubalance.record.timings import (
    BUSY,
    STAGES,
    CollectiveRow,
    DataParallelResult,
    DdpAttempt,
    DeviceProbe,
    FencedBlock,
    HostUse,
    RankInfo,
    RankMemory,
    RankSteps,
    SoloResult,
    WarmUp,
)

Events = Mapping[int, Sequence[Event]]


@dataclass(frozen=True)
class Measured:
    """All that one crew measured, times relative to the run's start."""

    ranks: list[RankInfo] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    ddp: DdpAttempt | None = None
    solo: list[SoloResult] = field(default_factory=list)
    probes: list[DeviceProbe] = field(default_factory=list)
    collectives: list[CollectiveRow] = field(default_factory=list)
    data_parallel: DataParallelResult | None = None
    links: Links | None = None
    memory: list[RankMemory] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    pass_number: int | None = None
    """Which of the job's passes this is; None for a whole crew."""
    nccl_operations: list[tuple[str, int]] = field(default_factory=list)
    """Collective and bytes, in the order in which NCCL was asked while it wrote its log."""


def collect_measured(job: Job, events: Events, start_s: float) -> Measured:
    """Everything in the logs of one crew."""
    return Measured(
        ranks=_ranks(job, events),
        phases=_phases(job, events, start_s),
        ddp=None if job.passes else _ddp(job, events, start_s),
        solo=[SoloResult(**values) for values in _by_rank(job, events, "solo")],
        probes=[DeviceProbe(**values) for values in _by_rank(job, events, "probe")],
        collectives=[CollectiveRow(**_values(event)) for event in _named(events.get(0, ()), "collective")],
        data_parallel=_data_parallel(events),
        links=collect_links(job, events.get(0, ())),
        memory=[] if job.passes else _memory(job, events),
        skipped=[Skipped(**_values(event)) for event in _named(events.get(0, ()), "skipped")] + _unreadable(events),
        nccl_operations=[
            (name, size) for event in _named(events.get(0, ()), "nccl_operations") for name, size in event["operations"]
        ],
    )


def collect_passes(job: Job, events: Events, start_s: float) -> list[Measured]:
    """Each pass of the job that every rank finished, in order: its attempt, its memory, who the ranks are, and as
    phases the pass itself (named ddp) and the windows in it.
    """
    ranks = _ranks(job, events)
    finished = []
    for number in range(len(job.passes)):
        inside = {rank: _pass_lines(lines, number) for rank, lines in events.items()}
        attempt = _ddp(job, inside, start_s) if inside and all(inside.values()) else None
        if attempt is None:
            continue
        finished.append(
            Measured(
                ranks=ranks,
                phases=[_pass_phase(job, inside, start_s), *_windows(job, inside, start_s)],
                ddp=attempt,
                memory=_memory(job, inside),
                pass_number=number,
            )
        )
    return finished


def _pass_lines(lines: Sequence[Event], number: int) -> list[Event]:
    """From a pass's begin to its end, both included; [] when either is missing."""
    edges = [
        index
        for index, event in enumerate(lines)
        if event["event"] in ("pass_begin", "pass_end") and event["number"] == number
    ]
    return list(lines[edges[0] : edges[1] + 1]) if len(edges) == 2 else []


def _pass_phase(job: Job, inside: Events, start_s: float) -> Phase:
    return Phase(
        name="ddp",
        attempt=job.attempt,
        begin_s=round(min(lines[0]["t_s"] for lines in inside.values()) - start_s, 4),
        end_s=round(max(lines[-1]["t_s"] for lines in inside.values()) - start_s, 4),
    )


def _memory(job: Job, events: Events) -> list[RankMemory]:
    return [RankMemory(**values) for values in _by_rank(job, events, "memory")]


def _unreadable(events: Events) -> list[Skipped]:
    """A log with lines that nobody can read has lost something, and the report says so."""
    counts = {rank: len(_named(lines, "unreadable")) for rank, lines in events.items()}
    return [
        Skipped(what=f"log of rank {rank}", reason=f"{count} lines could not be read")
        for rank, count in counts.items()
        if count
    ]


def _named(lines: Sequence[Event], name: str) -> list[Event]:
    return [event for event in lines if event["event"] == name]


def _by_rank(job: Job, events: Events, name: str) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "device": job.slots[rank].device, **_values(event)}
        for rank, lines in events.items()
        for event in _named(lines, name)
    ]


def _values(event: Event) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key not in ("event", "t_s")}


def _ranks(job: Job, events: Events) -> list[RankInfo]:
    infos = []
    for rank, lines in events.items():
        hello, device = _named(lines, "hello"), _named(lines, "device")
        if hello and device:
            infos.append(
                RankInfo(
                    rank=rank,
                    local_rank=rank,
                    attempt=job.attempt,
                    pid=hello[0]["pid"],
                    device=device[0]["slot"],
                    device_name=device[0]["name"],
                    device_uuid=device[0]["uuid"],
                    versions=device[0]["versions"],
                )
            )
    return infos


def _phases(job: Job, events: Events, start_s: float) -> list[Phase]:
    """A phase lasts from the first rank that begins it to the last that ends it; null if any rank never did."""
    names = list(dict.fromkeys(e["phase"] for lines in events.values() for e in _named(lines, "phase_begin")))
    phases = []
    for name in names:
        begins = [e["t_s"] for lines in events.values() for e in _named(lines, "phase_begin") if e["phase"] == name]
        ends = [e["t_s"] for lines in events.values() for e in _named(lines, "phase_end") if e["phase"] == name]
        finished = len(ends) == len(events)
        phases.append(
            Phase(
                name=name,
                attempt=job.attempt,
                begin_s=round(min(begins) - start_s, 4),
                end_s=round(max(ends) - start_s, 4) if finished else None,
            )
        )
    return phases + _windows(job, events, start_s)


def _windows(job: Job, events: Events, start_s: float) -> list[Phase]:
    """Stretches inside a phase that a workload marked by itself, such as the steady part."""
    windows: list[Phase] = []
    begins: dict[str, float] = {}
    for event in _named(events.get(0, ()), "window"):
        if event["edge"] == "begin":
            begins[event["name"]] = event["t_s"]
        else:
            begin = begins.pop(event["name"], None)
            if begin is None:  # its line could not be read
                continue
            windows.append(
                Phase(
                    name=event["name"],
                    attempt=job.attempt,
                    begin_s=round(begin - start_s, 4),
                    end_s=round(event["t_s"] - start_s, 4),
                )
            )
    return windows


def _ddp(job: Job, events: Events, start_s: float) -> DdpAttempt | None:
    """Blocks that every rank finished; None before the first."""
    steady = {rank: _named(lines, "steady") for rank, lines in events.items()}
    blocks = {rank: _named(lines, "block") for rank, lines in events.items()}
    common = min((len(found) for found in blocks.values()), default=0)
    if common == 0 or not all(steady.values()):
        return None
    warm_up = _named(events[0], "warm_up")
    ended = all(_named(lines, "ddp_end") for lines in events.values())
    return DdpAttempt(
        attempt=job.attempt,
        steps_per_block=steady[0][0]["steps_per_block"],
        warm_up=WarmUp(**_values(warm_up[0])) if warm_up else None,
        complete=ended,
        ranks=[
            _rank_steps(job, rank, lines, steady[rank][0], blocks[rank][:common], start_s)
            for rank, lines in events.items()
        ],
    )


def _rank_steps(
    job: Job, rank: int, lines: Sequence[Event], steady: Event, blocks: Sequence[Event], start_s: float
) -> RankSteps:
    staged = all("stages_ms" in block for block in blocks)
    collector, device_step = _named(lines, "collector"), _named(lines, "device_step")
    return RankSteps(
        rank=rank,
        device=job.slots[rank].device,
        samples_per_step=steady["samples"],
        units_per_step=steady["units"],
        fenced=[
            FencedBlock(
                begin_s=round(block["begin"] - start_s, 4),
                compute_ms=block["compute_ms"],
                fence_ms=block["fence_ms"],
                transfer_ms=block["transfer_ms"],
            )
            for block in blocks
        ],
        overlapped_step_ms=[event["step_ms"] for event in _named(lines, "overlapped")],
        loss=next((event["loss"] for event in _named(lines, "ddp_end")), None),
        stages_ms={stage: [block["stages_ms"][stage] for block in blocks] for stage in STAGES} if staged else {},
        means_ms=_means(blocks),
        busy_ms=[block["busy_ms"] for block in blocks] if all("busy_ms" in block for block in blocks) else [],
        host=[HostUse(**block["host"]) for block in blocks] if staged else [],
        collector_ms=collector[0]["collector_ms"] if collector else None,
        device_step_ms=device_step[0]["device_step_ms"] if device_step else None,
        device_step_missing=device_step[0]["device_step_missing"] if device_step else None,
    )


def _means(blocks: Sequence[Event]) -> dict[str, list[float]]:
    """By stage, and of the thread's CPU time; empty where a block lacks them."""
    if not all("means_ms" in block for block in blocks):
        return {}
    return {name: [block["means_ms"][name] for block in blocks] for name in (*STAGES, BUSY)}


def _data_parallel(events: Events) -> DataParallelResult | None:
    found = _named(events.get(0, ()), "data_parallel")
    return DataParallelResult(**_values(found[0])) if found else None

"""Selftest records made by hand, judged by the real code."""

from __future__ import annotations

from typing import Any

from gpubalance.record.run import Phase, Skipped
from gpubalance.record.samples import ProcessMemory, Samples
from gpubalance.record.selftest import Pass, Played, Selftest
from gpubalance.record.timings import RankInfo, RankMemory
from gpubalance.testing.runs import make_attempt, make_run, steady

GIB = 2**30


def make_pass(number: int, compute_ms: list[float], **values: Any) -> Pass:
    """A pass with these compute times, by rank; extra compute lies in forward."""
    attempt = make_attempt(steady(compute_ms, noise=0.002, seed=number))
    begin = 20.0 * number
    base: dict[str, Any] = {
        "number": number,
        "crew": 1,
        "begin_s": begin,
        "end_s": begin + 15.0,
        "phases": [
            Phase(name="ddp", attempt=0, begin_s=begin, end_s=begin + 15.0),
            Phase(name="ddp fenced", attempt=0, begin_s=begin + 1.0, end_s=begin + 9.5),
        ],
        "ddp": with_stages(attempt, compute_ms),
    }
    return Pass(**{**base, **values})


def with_stages(attempt: Any, compute_ms: list[float]) -> Any:
    """Stages and device times in which the fastest rank's 100 ms are the work of all."""
    blocks = len(attempt.ranks[0].fenced)
    ranks = [
        rank.model_copy(
            update={
                "stages_ms": {
                    "update": [10.0] * blocks, "input": [0.0] * blocks, "copy": [0.0] * blocks,
                    "forward": [own - 70.0] * blocks, "backward": [60.0] * blocks,
                },
                "device_step_ms": own,
            }
        )
        for rank, own in zip(attempt.ranks, compute_ms, strict=True)
    ]  # fmt: skip
    return attempt.model_copy(update={"ranks": ranks})


def make_selftest(passes: list[Pass], played: list[Played], **values: Any) -> Selftest:
    """A selftest on H200s, or on CPU slots with on_cpu."""
    ranks = len(passes[0].ddp.ranks) if passes else values.pop("ranks", 2)
    run = make_run(ranks=ranks, on_cpu=values.pop("on_cpu", False))
    base: dict[str, Any] = {
        "gpubalance_version": "0.1.0",
        "selftest_id": "2026-01-01T00-00-00-000000",
        "started_at": "2026-01-01T00:00:00+00:00",
        "duration_s": 310.0,
        "seed": 4711,
        "settings": {},
        "node": run.node,
        "plan": run.plan,
        "ranks": [crew_rank(crew, rank) for crew in (0, 1) for rank in range(ranks)],
        "passes": passes,
        "played": played,
    }
    return Selftest(**{**base, **values})


def crew_rank(crew: int, rank: int) -> RankInfo:
    """Rank r of crew c is process 100 c + r, on the device of its number."""
    return RankInfo(
        rank=rank, local_rank=rank, attempt=crew, pid=100 * crew + rank, device=rank, device_name="NVIDIA H200"
    )


def healthy(number: int) -> Played:
    return Played(number=number, row="healthy", title="healthy", faults=[], ranks=[])


def compute(number: int, rank: int, percent: int, *, again: bool = False) -> Played:
    spelled = [f"compute:rank={rank},percent={percent}"]
    title = f"compute +{percent} %"
    return Played(number=number, row=f"compute_{percent}", title=title, faults=spelled, ranks=[rank], again=again)


def right_and_wrong() -> Selftest:
    """One row right, one missed, in five passes on two GPUs."""
    times = [[100.0, 100.0], [100.0, 120.0], [100.0, 100.0], [100.5, 100.0], [100.0, 100.0]]
    passes = [make_pass(number, each) for number, each in enumerate(times)]
    played = [healthy(0), compute(1, 1, 20), healthy(2), compute(3, 0, 8), healthy(4)]
    skipped = [Skipped(what="half", reason="half of 2 ranks is one: the same as compute")]
    return make_selftest(passes, played, skipped=skipped)


def all_right() -> Selftest:
    """The first three passes of it."""
    record = right_and_wrong()
    return record.model_copy(update={"passes": record.passes[:3], "played": record.played[:3], "skipped": []})


def held(number: int, bytes_by_rank: list[int], others: list[ProcessMemory] | None = None) -> Pass:
    """A pass in which the ranks hold so much of their devices."""
    capacity = 140 * GIB
    memory = [
        RankMemory(rank=rank, device=rank, peak_allocated_bytes=size, peak_reserved_bytes=size, capacity_bytes=capacity)
        for rank, size in enumerate(bytes_by_rank)
    ]
    own = [ProcessMemory(device=r, pid=100 + r, rank=r, memory_used_bytes=s) for r, s in enumerate(bytes_by_rank)]
    samples = Samples(processes=[*own, *(others or [])])
    return make_pass(number, [100.0, 100.0], memory=memory, samples=samples)

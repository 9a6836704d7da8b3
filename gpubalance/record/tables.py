"""Runs as pandas tables, for notebooks and spreadsheets. The only module that imports pandas."""

from __future__ import annotations

import pandas as pd

from gpubalance.record.run import Run


def samples_table(run: Run) -> pd.DataFrame:
    """One row a tick and device: t_s, device, uuid, phase, and every column that any device offers (units in names)."""
    frames: list[pd.DataFrame] = []
    for samples in run.samples.devices:
        frame = pd.DataFrame({"t_s": run.samples.t_s, "device": samples.device, **samples.columns})
        frame.insert(2, "uuid", run.plan.devices[samples.device].uuid)
        frame.insert(3, "phase", [phase_at(run, t) for t in run.samples.t_s])
        frames.append(frame)
    return _stacked(frames, ["t_s", "device", "uuid", "phase"])


def steps_table(run: Run) -> pd.DataFrame:
    """One row a fenced step and rank: attempt, rank, device, block, step, compute_ms, fence_ms, transfer_ms."""
    frames = [
        pd.DataFrame(
            {
                "attempt": attempt.attempt,
                "rank": rank.rank,
                "device": rank.device,
                "block": index,
                "step": range(len(block.compute_ms)),
                "compute_ms": block.compute_ms,
                "fence_ms": block.fence_ms,
                "transfer_ms": block.transfer_ms,
            }
        )
        for attempt in run.ddp
        for rank in attempt.ranks
        for index, block in enumerate(rank.fenced)
    ]
    return _stacked(frames, ["attempt", "rank", "device", "block", "step", "compute_ms", "fence_ms", "transfer_ms"])


def _stacked(frames: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    table: pd.DataFrame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({c: [] for c in columns})
    return table


def phase_at(run: Run, t_s: float) -> str | None:
    """The innermost phase that was running at this time: the one that began last."""
    running = [phase for phase in run.phases if phase.begin_s <= t_s and (phase.end_s is None or t_s <= phase.end_s)]
    return max(running, key=lambda phase: phase.begin_s).name if running else None

"""Saved runs in one line: two H200s, and whatever a test replaces."""

from __future__ import annotations

from typing import Any

from gpubalance.record.baselines import Collective, Fact, SavedRun, Setup, SetupDevice
from gpubalance.record.run import ModelSpec

SPEC = ModelSpec(kind="mlp", width=4096, layers=12, dtype="bfloat16", parameters=201_375_744)


def devices(*uuids: str | None, name: str = "NVIDIA H200", power_limit_w: float = 700.0) -> list[SetupDevice]:
    return [
        SetupDevice(name=name, uuid=uuid, nvml_index=index, power_limit_w=power_limit_w)
        for index, uuid in enumerate(uuids)
    ]


def setup(**values: Any) -> Setup:
    base: dict[str, Any] = {
        "backend": "nccl",
        "devices": devices("GPU-a", "GPU-b"),
        "cpu_model": "CPU",
        "workloads": ["solo", "ddp"],
        "model": SPEC,
        "global_batch": 8192,
        "per_rank_batch": 4096,
        "versions": {"driver": "580.1", "torch": "2.11.0", "cuda": "13.0", "nccl": "2.28.9"},
    }
    return Setup(**{**base, **values})


def saved(*facts: Fact, run_id: str = "run", started_at: str = "2026-01-01T00:00:00+00:00", **values: Any) -> SavedRun:
    """A saved run with these facts; `values` replace parts of its setup, or of itself."""
    own = {name: values.pop(name) for name in ("injected", "interrupted_by", "gpubalance_version") if name in values}
    return SavedRun(
        run_id=run_id,
        started_at=started_at,
        setup=setup(**values),
        facts=list(facts),
        verdict="pass",
        **{"gpubalance_version": "0.1.0", **own},
    )


def fact(metric: str, value: float, low: float | None = None, high: float | None = None, **values: Any) -> Fact:
    return Fact.model_validate({"metric": metric, "value": value, "low": low, "high": high, **values})


def collective(size_bytes: int = 2**30, **values: Any) -> Collective:
    base: dict[str, Any] = {"name": "all_reduce", "mode": "eager", "dtype": "float32", "size_bytes": size_bytes}
    return Collective(**{**base, **values})

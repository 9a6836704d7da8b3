"""Nodes that cannot be judged."""

from __future__ import annotations

from typing import Any

from gpubalance.record.probe import Probe
from tests.checks.probing.helpers import make_probe


def silent(**values: Any) -> Probe:
    """A node whose driver never answered."""
    look = make_probe(**values)
    return look.model_copy(update={"node": None, "details": [], "nvml_failed": "nvmlInit did not return in 20 s"})


def without_gpus(error: str | None = "LIBRARY_NOT_FOUND", **node: Any) -> dict[str, Any]:
    return {"count": 0, "node": {"nvml_error": error, "cuda_driver_version": None, **node}}

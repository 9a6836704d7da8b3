"""Which GPUs there are, which there should be, and which a job can see."""

from __future__ import annotations

from gpubalance.checks.probing.check import Gpu, setting
from gpubalance.record.probe import Probe

ASKED_FOR_NONE = frozenset({"", "-1", "none", "void", "NoDevFiles"})
"""Values of the visibility variables that ask for no GPU; the last is old Slurm's."""

LOST_WORDS = {
    "GPU_IS_LOST": "is lost: it fell off the bus",
    "GPU_NOT_FOUND": "is not found by its own driver",
    "RESET_REQUIRED": "must be reset before anybody can use it",
}


def gpu_is_due(probe: Probe) -> bool:
    """Whether there should be a GPU here: something shows one, or somebody asked for one."""
    evidence = probe.node is None or bool(probe.node.gpu_evidence or probe.node.devices)
    return evidence or bool(setting(probe, "expect_gpus")) or asked_for(probe) is not None


def asked_for(probe: Probe) -> str | None:
    """The variable that asks for a GPU, with its value."""
    environment = probe.node.environment if probe.node is not None else {}
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        value = environment.get(name, "").strip()
        if value not in ASKED_FOR_NONE:
            return f"{name}={value}"
    return None


def visible_gpus(probe: Probe, gpus: list[Gpu]) -> list[Gpu]:
    """Those that CUDA_VISIBLE_DEVICES leaves visible, in CUDA's order."""
    shown = probe.node.visibility if probe.node is not None else None
    return gpus if shown is None else [gpus[index] for index in shown.visible]


def lost_reason(gpu: Gpu) -> str | None:
    """NVML's word that nothing can be done with this GPU any more; null for all others."""
    reasons = {*gpu.device.missing.values(), *gpu.detail.missing.values()}
    return next((reason for reason in LOST_WORDS if reason in reasons), None)

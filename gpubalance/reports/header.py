"""The first lines of every report: what is here, and what ran. Also what is said before a run starts."""

from __future__ import annotations

from collections import Counter

from gpubalance.record.node import Node
from gpubalance.record.run import Plan, Run
from gpubalance.record.selftest import Selftest

CPU_NOTE = "over gloo: this shows the method, not GPUs"


def plan_lines(plan: Plan, node: Node) -> list[str]:
    """What is about to run, known before any rank started."""
    versions = [f"torch {node.packages.get('torch') or 'not found'}"]
    versions += [f"driver {node.driver_version}"] if node.driver_version else []
    nccl = node.packages.get("nvidia-nccl-cu13") or node.packages.get("nvidia-nccl-cu12")
    versions += [f"NCCL {nccl}"] if plan.backend == "nccl" and nccl else []
    return [
        f"{devices_text(plan)}   {'  '.join(versions)}",
        work_text(plan),
        *(f"note: {note}" for note in plan.notes),
    ]


def header_lines(run: Run | Selftest) -> list[str]:
    """What ran, with the versions that the ranks really loaded."""
    seen = run.ranks[0].versions if run.ranks else {}
    names = {"torch": "torch", "cuda": "CUDA", "nccl": "NCCL"}
    versions = [f"{label} {seen[key]}" for key, label in names.items() if seen.get(key)]
    lines = [f"gpubalance {run.gpubalance_version}   {devices_text(run.plan)}"]
    versions += [run.node.cpu_model] if run.plan.backend == "gloo" and run.node.cpu_model else []
    lines += ["  ".join(versions)] if versions else []
    lines.append(work_text(run.plan))
    steering = nccl_text(run.node)
    return lines + ([steering] if steering else []) + [f"note: {note}" for note in run.plan.notes]


def devices_text(plan: Plan) -> str:
    """2 x NVIDIA H200 (18 NVLinks), or the number of CPU ranks and what that is good for."""
    if plan.backend == "gloo":
        return f"{len(plan.devices)} x CPU core {CPU_NOTE}"
    names = Counter(device.name for device in plan.devices)
    links = {device.readings.get("nvlink_count") for device in plan.devices}
    count = links.pop() if len(links) == 1 else None
    suffix = f" ({count} NVLinks)" if isinstance(count, int) and count else ""
    text = ", ".join(f"{number} x {name}" for name, number in names.items())
    return f"{text}{suffix}"


def work_text(plan: Plan) -> str:
    """2 ranks x batch 4096 = 8192, mlp of 12 x 4096 in bfloat16, nccl."""
    ranks = len(plan.devices)
    model = f"{plan.model.kind} of {plan.model.layers} x {plan.model.width} in {plan.model.dtype}"
    launcher = "" if plan.launcher == "own" else f", started by {plan.launcher}"
    plural = "rank" if ranks == 1 else "ranks"
    return f"{ranks} {plural} x batch {plan.per_rank_batch} = {plan.global_batch}, {model}, {plan.backend}{launcher}"


def nccl_text(node: Node) -> str | None:
    """NCCL's variables that are set, since each changes what is measured."""
    found = [
        f"{name}={value}"
        for name, value in node.environment.items()
        if name.startswith(("NCCL_", "TORCH_NCCL_")) and name != "NCCL_VERSION"  # a label of images, read by nobody
    ]
    return f"set: {', '.join(found)}" if found else None

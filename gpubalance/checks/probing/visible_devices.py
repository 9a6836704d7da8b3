"""C6: which GPUs this process was left with, and whether somebody miscounted."""

from __future__ import annotations

from collections.abc import Iterator

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import finding
from gpubalance.record.node import Node, Visibility
from gpubalance.record.probe import Probe

_SHOWN = 20
"""A longer entry, such as a UUID, stands in the details only."""

_EVERYTHING = ("", "all", "none", "void")
"""Words of NVIDIA_VISIBLE_DEVICES that name no GPU; none and void come with GPUs that were mounted by hand."""


def visibility(probe: Probe) -> list[Finding]:
    """C6: WARN on each entry of CUDA_VISIBLE_DEVICES that yields no GPU, as CUDA drops it without a word.

    INFO where CUDA counts otherwise than nvidia-smi, and where the container runtime was asked for another number.
    """
    node = probe.node
    if node is not None and node.nvml_error is not None and not node.gpu_evidence:
        return []
    if node is None or node.visibility is None:
        reason = probe.nvml_failed or (node.nvml_error if node is not None else None) or "not read"
        step = "see what keeps NVML from answering"
        return [finding(State.UNKNOWN, f"visible GPUs not known: {reason}", next_step=step)]
    found = [*_dropped(node.visibility), *_order(node), *_runtime(node)]
    if any(each.state is State.WARN for each in found):
        return found
    visible, there = len(node.visibility.visible), len(node.devices)
    by = "" if node.visibility.asked is None else ", as CUDA_VISIBLE_DEVICES asks"
    return [finding(State.PASS, f"{visible} of {counted(there, 'GPU')} visible{by}"), *found]


def _dropped(visible: Visibility) -> Iterator[Finding]:
    """A repeated device empties the whole list, which is one finding."""
    repeated = [each for each in visible.dropped if "repeats a device" in each.reason]
    if repeated:
        yield _warning(
            visible, "CUDA_VISIBLE_DEVICES names a GPU twice, which hides all", repeated[0].entry, repeated[0].reason
        )
    for each in visible.dropped:
        if each not in repeated:
            entry = repr(each.entry) if len(each.entry) <= _SHOWN else "an entry"
            yield _warning(visible, f"CUDA_VISIBLE_DEVICES: {entry} gives no GPU", each.entry, each.reason)


def _warning(visible: Visibility, message: str, entry: str, reason: str) -> Finding:
    return finding(
        State.WARN,
        message,
        observed=f"CUDA_VISIBLE_DEVICES={visible.asked}",
        evidence=(f"{entry!r}: {reason}",),
        next_step="correct CUDA_VISIBLE_DEVICES or unset it",
    )


def _order(node: Node) -> Iterator[Finding]:
    order = node.environment.get("CUDA_DEVICE_ORDER")
    if order != "PCI_BUS_ID" and len({device.name for device in node.devices}) > 1:
        yield finding(
            State.INFO,
            "CUDA numbers these different models otherwise than nvidia-smi",
            observed=f"CUDA_DEVICE_ORDER={order or 'unset, which is FASTEST_FIRST'}",
            next_step="set CUDA_DEVICE_ORDER=PCI_BUS_ID",
        )


def _runtime(node: Node) -> Iterator[Finding]:
    asked = node.environment.get("NVIDIA_VISIBLE_DEVICES")
    if asked is None or asked in _EVERYTHING or "MIG" in asked or ":" in asked:
        return
    entries = len(set(asked.split(",")))
    if entries != len(node.devices):
        yield finding(
            State.INFO,
            f"NVIDIA_VISIBLE_DEVICES names {entries}, but {counted(len(node.devices), 'GPU')} are here",
            observed=f"NVIDIA_VISIBLE_DEVICES={asked}",
        )

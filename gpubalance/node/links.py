"""How many NVLinks of a GPU are up, and which other GPUs it reaches over them: what its collectives can reach."""

from __future__ import annotations

from gpubalance.node.nvml import Answer, Nvml
from gpubalance.node.readings import MAX_LINKS, SENTINELS, link_count
from gpubalance.record.node import Device

NVLINK = 2
"""nvmlGpuP2PCapsIndex_t."""


def with_links(nvml: Nvml, device: Device, count: int) -> Device:
    """The device with two readings more: `nvlinks_up`, and `nvlink_peers`, NVML indices such as "1,2,3", which it
    reaches by a bridge or by a switch.
    """
    index = device.nvml_index
    assert index is not None
    up = _links_up(nvml, index)
    peers = up if up.reason is not None else _peers(nvml, index, count) if up.value else Answer("")
    found = {"nvlinks_up": up, "nvlink_peers": peers}
    missing = {key: answer.reason for key, answer in found.items() if answer.reason is not None}
    return device.model_copy(update={
        "readings": {**device.readings, **{key: answer.value for key, answer in found.items()}},
        "missing": {**device.missing, **missing},
    })  # fmt: skip


def _links_up(nvml: Nvml, index: int) -> Answer:
    """No number where a link would not say. A card without NVLink refuses the first one."""
    count, up = link_count(nvml, index), 0
    for link in range(MAX_LINKS if count is None else count):
        state = nvml.ask("DeviceGetNvLinkState", index, link)
        reason = "SENTINEL" if state.value in SENTINELS else state.reason
        if reason is not None:
            return Answer(up) if count is None and link else Answer(None, reason)
        up += bool(state.value)
    return Answer(up)


def _peers(nvml: Nvml, index: int, count: int) -> Answer:
    """A GPU that is lost hides no other one: only where nobody is known there is no value."""
    reached, reason = [], None
    others = [other for other in range(count) if other != index]
    known = 0
    for other in others:
        status = nvml.ask_pair("DeviceGetP2PStatus", index, other, NVLINK)
        refused = "SENTINEL" if status.value in SENTINELS else status.reason
        known += refused is None
        reason = reason or refused
        reached += [str(other)] if refused is None and status.value == 0 else []
    return Answer(None, reason) if reason is not None and not known else Answer(",".join(reached))

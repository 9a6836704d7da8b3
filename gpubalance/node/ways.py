"""How the GPUs of a node are joined: what lies between two of them on the board, and which NVLinks lead where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpubalance.node.details import read_links, read_peers
from gpubalance.node.devices import bus_id_of
from gpubalance.node.nvml import Nvml
from gpubalance.record.node import Device, Peer


def with_ways(nvml: Nvml, devices: Sequence[Device]) -> list[Device]:
    """The same devices, each with its peers and `nvlinks_active`, the number of its NVLinks that are up (null with a
    reason where NVML does not say).
    """
    return [_with_ways(nvml, index, devices) for index in range(len(devices))]


def _with_ways(nvml: Nvml, index: int, devices: Sequence[Device]) -> Device:
    device = devices[index]
    count = device.readings.get("nvlink_count")
    links, refused = read_links(nvml, index, count if isinstance(count, int) else None)
    up = [link["link"] for link in links if link["active"]]
    known = bool(links) and all(link["active"] is not None for link in links)
    reason = {} if known else {"nvlinks_active": refused.get("nvlink_active", "NOT_SUPPORTED")}
    ends = _ends(nvml, index, up, {other.pci_bus_id: other.nvml_index for other in devices if other.pci_bus_id})
    peers = [Peer(**{**peer, "nvlinks": ends[peer["nvml_index"]] if ends else None})
             for peer in read_peers(nvml, index, len(devices))]  # fmt: skip
    return device.model_copy(
        update={
            "readings": {**device.readings, "nvlinks_active": len(up) if known else None},
            "missing": {**device.missing, **reason},
            "peers": peers,
        }
    )


def _ends(nvml: Nvml, index: int, links: Sequence[int], gpus: dict[str, int | None]) -> Counter[int | None] | None:
    """How many links lead to each GPU, by NVML index; None unless all of them lead to GPUs of this node.

    Links to NVSwitches lead to their bus ids, and guests see all bits set in place of an address.
    """
    ends: Counter[int | None] = Counter()
    for link in links:
        answer = nvml.ask("DeviceGetNvLinkRemotePciInfo", index, link)
        bus_id = None if answer.reason is not None else bus_id_of(answer.value).value
        if bus_id not in gpus:
            return None
        ends[gpus[bus_id]] += 1
    return ends if links else None

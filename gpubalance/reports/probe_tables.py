"""A probe as tables: devices, how they are joined, what they did under load, what steered the look."""

from __future__ import annotations

from collections.abc import Iterator

from gpubalance.checks.probing.check import Gpu, gpus_of
from gpubalance.record.node import Peer
from gpubalance.record.probe import DeviceLoad, Load, Probe
from gpubalance.reports.common_tables import (
    IDENTITY,
    SPEED,
    environment_table,
    identity_cells,
    settings_table,
    speed_cells,
    versions_table,
    with_rows,
)
from gpubalance.reports.table import NONE, Column, Table, number, words

_DEVICE = (
    Column("nvml"),
    Column("cuda"),
    Column("memory", "GiB"),
    Column("used", "GiB"),
    Column("util", "%"),
    Column("links", "up"),
    Column("PCIe", "gen x width"),
    Column("clock", "MHz"),
    Column("power", "W"),
    Column("temp", "C"),
)
GIB = 2.0**-30

LINKS = {
    "INTERNAL": "board",
    "SINGLE": "PIX",
    "MULTIPLE": "PXB",
    "HOSTBRIDGE": "PHB",
    "NODE": "NODE",
    "SYSTEM": "SYS",
}
"""nvidia-smi topo's words for the nearest common ancestor."""


def device_table(probe: Probe) -> Table:
    """A row a GPU that NVML lists."""
    return Table("Devices", _DEVICE, tuple(_device(gpu) for gpu in gpus_of(probe)))


def who_table(probe: Probe) -> Table:
    """Every GPU by all its names."""
    return Table("Identities", IDENTITY, tuple(identity_cells(gpu.device) for gpu in gpus_of(probe)))


def _device(gpu: Gpu) -> tuple[str, ...]:
    return (
        str(gpu.index),
        number(gpu.device.cuda_ordinal),
        number(gpu.device.memory_total_bytes, scale=GIB),
        number(gpu.number("memory_used_bytes"), 1, GIB),
        number(gpu.number("utilization_percent")),
        links_up(gpu),
        _pcie(gpu),
        number(gpu.number("sm_clock_mhz")),
        number(gpu.number("power_w")),
        number(gpu.number("temperature_c")),
    )


def links_up(gpu: Gpu) -> str:
    """NVLinks that are up, of those that the GPU has: 14/18."""
    links = gpu.detail.links
    return f"{sum(1 for link in links if link.active)}/{len(links)}" if links else NONE


def _pcie(gpu: Gpu) -> str:
    generation, width = gpu.number("pcie_generation"), gpu.number("pcie_width")
    return NONE if generation is None or width is None else f"{generation:.0f} x {width:.0f}"


def link_matrix(probe: Probe) -> Table:
    """Who reaches whom; no rows where there is nobody to reach or nobody asked."""
    gpus = gpus_of(probe)
    columns = (Column("to", words=True), *(Column(gpu.name) for gpu in gpus))
    if len(gpus) < 2 or not any(gpu.detail.peers for gpu in gpus):
        return Table("Link matrix", columns, (), matrix=True)
    legend = "NVL: peer access over NVLink; else the way as nvidia-smi topo calls it, ! where peers cannot read"
    notes = (legend, *(text for gpu in gpus for text in _refused(gpu)))
    return Table("Link matrix", columns, tuple(_reach(gpu, gpus) for gpu in gpus), notes, matrix=True)


def _reach(gpu: Gpu, gpus: list[Gpu]) -> tuple[str, ...]:
    peers = {peer.nvml_index: peer for peer in gpu.detail.peers}
    return (gpu.name, *("." if other.index == gpu.index else way_of(peers.get(other.index)) for other in gpus))


def way_of(peer: Peer | None) -> str:
    """NVL, or the way over the board; `!` where one GPU cannot read the other's memory."""
    if peer is None:
        return NONE
    if peer.p2p.get("nvlink") == "OK":
        return "NVL"
    way = LINKS.get(peer.topology or "", peer.topology or NONE)
    return way if peer.p2p.get("read") in ("OK", None) else f"{way}!"


def _refused(gpu: Gpu) -> Iterator[str]:
    for peer in gpu.detail.peers:
        parts = [f"{what} {status}" for what, status in sorted(peer.p2p.items()) if status not in ("OK", None)]
        if parts:
            yield f"{gpu.name} to GPU {peer.nvml_index}: {', '.join(parts)}"


def load_table(probe: Probe) -> Table:
    """What each GPU did under `--load`, or why it did nothing."""
    columns = (*SPEED, Column("took", "s"), *words("stage", "ended by"))
    load = probe.load
    return Table("Under load", columns, tuple(_load(load, result) for result in load.results) if load else ())


def _load(load: Load, result: DeviceLoad) -> tuple[str, ...]:
    ended = " ".join(filter(None, (result.error_kind, result.error, result.skipped)))
    name = f"GPU {load.devices[result.device]}"
    return name, *speed_cells(result.speed), number(result.seconds, 1), result.stage, ended


def host_table(probe: Probe) -> Table:
    """The machine around the GPUs."""
    node, host = probe.node, probe.host
    found: dict[str, str | None] = {"virtual machine": _yes(host.virtual_machine)}
    if node is not None:
        found |= {
            "host": node.hostname,
            "container": node.container,
            "CPU": node.cpu_model,
            "CPUs usable": f"{node.cpu_effective:g} of {node.cpu_count}",
            "memory": _gib(node.memory_total_bytes),
            "CUDA_VISIBLE_DEVICES": node.visibility.asked if node.visibility else None,
            "NVML": node.nvml_error,
        }
    found |= {"NUMA nodes": str(len(host.numa_nodes)), "/dev/shm": _gib(host.shm_total_bytes), "IOMMU": host.iommu}  # noqa: S108  (its size is what is said)
    found |= {"driver": probe.nvml_failed, "torch": probe.torch.error}
    rows = tuple((name, value) for name, value in found.items() if value is not None)
    return Table("Host", words("what", "value"), rows)


def _yes(value: bool | None) -> str | None:  # noqa: FBT001  (a value of the record, no switch)
    return None if value is None else "yes" if value else "no"


def _gib(size: int | None) -> str | None:
    return None if size is None else f"{size * GIB:.1f} GiB"


def main_tables(probe: Probe) -> list[Table]:
    """What people look at first."""
    return with_rows([device_table(probe), who_table(probe), link_matrix(probe), load_table(probe)])


def more_tables(probe: Probe) -> list[Table]:
    """The rest of it."""
    torch = probe.torch
    versions = {
        "gpubalance": probe.gpubalance_version,
        "torch": torch.version,
        "cuda": torch.cuda,
        "nccl": torch.nccl,
        "nccl_library": torch.nccl_library,
        "cudnn": torch.cudnn,
    }
    return with_rows([
        host_table(probe),
        versions_table(probe.node, versions),
        settings_table(probe.settings),
        environment_table(probe.node),
    ])  # fmt: skip

"""What the tables of a run and of a probe share: what steered it, which software it saw, whether it was played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpubalance.record.node import Device, Node
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run, Setting
from gpubalance.record.timings import DeviceProbe
from gpubalance.reports.table import NONE, Column, Table, number, shown, words

SPEED = (
    Column("device", words=True),
    Column("product", "TFLOP/s"),
    Column("memory", "GB/s"),
    Column("to GPU", "GB/s"),
    Column("from GPU", "GB/s"),
)

IDENTITY = (Column("cuda"), Column("nvml"), Column("minor"), *words("model", "UUID", "PCI bus id"))


def identity_cells(device: Device) -> tuple[str, ...]:
    """Every name of a device, as `IDENTITY` has them; a slot of the CPU is known by its cores."""
    model = device.name if device.kind == "cuda" else f"{device.name}, core {', '.join(map(str, device.cpu_cores))}"
    numbers = (device.cuda_ordinal, device.nvml_index, device.minor_number)
    return *map(number, numbers), model, device.uuid or NONE, device.pci_bus_id or NONE


def settings_table(settings: Mapping[str, Setting]) -> Table:
    """Every setting, and who set it."""
    rows = tuple((name, shown(setting.value), setting.origin) for name, setting in settings.items())
    return Table("Settings", words("setting", "value", "from"), rows)


def environment_table(node: Node | None) -> Table:
    """Variables that steer CUDA, NCCL, gloo and OpenMP."""
    rows = tuple(sorted(node.environment.items())) if node else ()
    return Table("Environment variables", words("variable", "value"), rows)


def versions_table(node: Node | None, more: Mapping[str, object]) -> Table:
    """Software, that of the node after what the caller knows better."""
    found: dict[str, object] = dict(more)
    if node is not None:
        found |= {
            "driver": node.driver_version,
            "NVML": node.nvml_version,
            "CUDA of the driver": node.cuda_driver_version,
            "kernel": node.kernel,
            **{f"package {name}": version for name, version in sorted(node.packages.items())},
        }
    rows = tuple((name, str(version)) for name, version in found.items() if version is not None)
    return Table("Versions", words("what", "version"), rows)


def speed_cells(speed: DeviceProbe | None) -> tuple[str, ...]:
    """The quick measures of one device, as `SPEED` names them."""
    if speed is None:
        return (NONE,) * 4
    return (
        number(speed.gemm_tflops, 1),
        number(speed.memory_copy_gb_per_s),
        number(speed.host_to_device_gb_per_s, 1),
        number(speed.device_to_host_gb_per_s, 1),
    )


def with_rows(tables: Sequence[Table]) -> list[Table]:
    """The tables that say something."""
    return [table for table in tables if table.rows]


def played(record: Run | Probe) -> str | None:
    """What a reader must know before anything else: that this is not the node's own state."""
    if isinstance(record, Probe):
        name = record.simulated
        return None if name is None else f"Simulated: {name}. This says nothing about this machine."
    faults = ", ".join(record.injected)
    return f"Injected on purpose: {faults}. This run says nothing about the node." if faults else None

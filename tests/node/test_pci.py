"""GPUs, bridges and the IOMMU on a made-up PCI bus."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.node import pci
from tests.node.planted import config_space, plant, plant_device, plant_gpu

GPU = "pci0000:5d/0000:5d:00.0/0000:5e:00.0"


def test_a_gpu_on_the_bus_tells_its_link(tmp_path: Path) -> None:
    folder = plant_gpu(
        tmp_path,
        GPU,
        numa_node="1\n",
        current_link_speed="16.0 GT/s PCIe\n",
        current_link_width="8\n",
        max_link_speed="32.0 GT/s PCIe\n",
        max_link_width="16\n",
    )
    (folder / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
    values, missing = pci.read_pci(tmp_path)
    assert values["pci_gpus"] == [
        {
            "bus_id": "0000:5e:00.0",
            "device_id": "0x2335",
            "driver": "nvidia",
            "numa_node": 1,
            "link_speed_gt_per_s": 16.0,
            "link_width": 8,
            "link_speed_max_gt_per_s": 32.0,
            "link_width_max": 16,
        }
    ]
    assert "pci_gpus" not in missing


@pytest.mark.parametrize(("speed", "width"), [("Unknown", "0"), ("Unknown speed", "63"), ("", "255")])
def test_what_a_dead_or_virtual_card_says_of_its_link_is_no_number(tmp_path: Path, speed: str, width: str) -> None:
    plant_gpu(tmp_path, GPU, current_link_speed=speed, current_link_width=width, numa_node="-1")
    (gpu,) = pci.read_pci(tmp_path)[0]["pci_gpus"]
    assert (gpu["link_speed_gt_per_s"], gpu["link_width"], gpu["numa_node"], gpu["driver"]) == (None,) * 4


def test_other_devices_are_no_gpus(tmp_path: Path) -> None:
    plant(plant_device(tmp_path, "pci0000:00/0000:00:02.0"), {"vendor": "0x8086", "class": "0x030000"})
    plant(plant_device(tmp_path, "pci0000:00/0000:00:03.0"), {"vendor": "0x10de", "class": "0x068000"})
    assert pci.gpu_addresses(tmp_path) == []


def test_without_sys_nothing_is_known(tmp_path: Path) -> None:
    values, missing = pci.read_pci(tmp_path)
    assert values == dict.fromkeys(("pci_gpus", "acs_bridges", "iommu"))
    assert missing == dict.fromkeys(("pci_gpus", "acs_bridges", "iommu"), "not readable")


def test_bridges_are_listed_from_the_top(tmp_path: Path) -> None:
    plant_gpu(tmp_path, "pci0000:5d/0000:5d:00.0/0000:5e:00.0/0000:5f:00.0")
    assert pci.bridges_above(tmp_path, "0000:5f:00.0") == ["0000:5d:00.0", "0000:5e:00.0"]


# Access control


@pytest.mark.parametrize(
    ("control", "redirecting"),
    [
        (0b0000000, False),
        (0b0000001, False),  # source validation alone keeps traffic where it is
        (0b0000100, True),
        (0b0001000, True),
        (0b0010000, True),
        (0b1100011, False),
        (0x1D, True),
    ],
)
def test_a_bridge_is_named_when_one_of_its_redirect_bits_is_set(
    tmp_path: Path, control: int, redirecting: bool
) -> None:
    bridge = plant_gpu(tmp_path, GPU).parent
    (bridge / "config").write_bytes(config_space(control))
    values, missing = pci.read_pci(tmp_path)
    assert values["acs_bridges"] == (["0000:5d:00.0"] if redirecting else [])
    assert "acs_bridges" not in missing


def test_a_bridge_without_the_capability_redirects_nothing(tmp_path: Path) -> None:
    (plant_gpu(tmp_path, GPU).parent / "config").write_bytes(config_space(None))
    assert pci.read_pci(tmp_path)[0]["acs_bridges"] == []


def test_a_gpu_directly_at_the_root_has_no_bridges(tmp_path: Path) -> None:
    plant_gpu(tmp_path, "pci0000:00/0000:00:06.0")
    assert pci.read_pci(tmp_path)[0]["acs_bridges"] == []


@pytest.mark.parametrize(
    ("size", "reason"), [(64, "NO_PERMISSION"), (256, "no extended configuration space"), (None, "ENOENT")]
)
def test_a_short_configuration_space_leaves_no_answer(tmp_path: Path, size: int | None, reason: str) -> None:
    bridge = plant_gpu(tmp_path, GPU).parent
    if size is not None:
        (bridge / "config").write_bytes(config_space(0x1D, size))
    values, missing = pci.read_pci(tmp_path)
    assert (values["acs_bridges"], missing["acs_bridges"]) == (None, reason)


def test_one_redirecting_bridge_is_enough_whatever_cannot_be_read(tmp_path: Path) -> None:
    (plant_gpu(tmp_path, GPU).parent / "config").write_bytes(config_space(0x1D))
    plant_gpu(tmp_path, "pci0000:9d/0000:9d:00.0/0000:9e:00.0")
    assert pci.read_pci(tmp_path)[0]["acs_bridges"] == ["0000:5d:00.0"]


@given(st.binary(min_size=0x101, max_size=0x400))
def test_any_bytes_end_in_a_register(tmp_path_factory: pytest.TempPathFactory, space: bytes) -> None:
    config = tmp_path_factory.mktemp("pci") / "config"
    config.write_bytes(space)
    bits = pci.acs_control(config)
    assert isinstance(bits, int)
    assert 0 <= bits <= 0xFFFF


# IOMMU


@pytest.mark.parametrize(
    ("kind", "meaning"), [("DMA", "translated"), ("DMA-FQ", "translated"), ("identity", "passthrough")]
)
def test_the_kind_of_the_gpus_group_decides(tmp_path: Path, kind: str, meaning: str) -> None:
    plant(plant_gpu(tmp_path, GPU), {"iommu_group/type": f"{kind}\n"})
    plant(tmp_path, {"proc/cmdline": "iommu=off"})
    assert pci.read_pci(tmp_path)[0]["iommu"] == meaning


def test_one_translated_gpu_is_enough(tmp_path: Path) -> None:
    plant(plant_gpu(tmp_path, GPU), {"iommu_group/type": "identity"})
    plant(plant_gpu(tmp_path, "pci0000:00/0000:00:06.0"), {"iommu_group/type": "DMA"})
    assert pci.read_pci(tmp_path)[0]["iommu"] == "translated"


def test_no_unit_is_off(tmp_path: Path) -> None:
    plant_gpu(tmp_path, GPU)
    (tmp_path / "sys/class/iommu").mkdir(parents=True)
    assert pci.read_pci(tmp_path)[0]["iommu"] == "off"


@pytest.mark.parametrize(
    ("command_line", "meaning"),
    [
        ("quiet iommu=pt\n", "passthrough"),
        ("intel_iommu=on iommu=pt", "passthrough"),
        ("iommu.passthrough=1", "passthrough"),
        ("intel_iommu=on", "translated"),
        ("amd_iommu=off", "off"),
        ("xiommu=pt", None),
        ("quiet", None),
    ],
)
def test_an_older_kernel_tells_by_its_command_line(tmp_path: Path, command_line: str, meaning: str | None) -> None:
    plant_gpu(tmp_path, GPU)
    (tmp_path / "sys/class/iommu/dmar0").mkdir(parents=True)
    plant(tmp_path, {"proc/cmdline": command_line})
    values, missing = pci.read_pci(tmp_path)
    assert values["iommu"] == meaning
    assert missing.get("iommu") == ("the kernel does not say" if meaning is None else None)


@pytest.mark.parametrize(("text", "node"), [("1\n", 1), ("0\n", 0), ("-1\n", None), (None, None)])
def test_the_numa_node_of_a_device_is_what_the_bus_says(tmp_path: Path, text: str | None, node: int | None) -> None:
    plant_gpu(tmp_path, GPU, **({} if text is None else {"numa_node": text}))
    assert pci.numa_node_of(tmp_path, "0000:5E:00.0") == node
    assert pci.numa_node_of(tmp_path, None) is None

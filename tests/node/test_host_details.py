"""The whole host: read from a made-up root, and from this machine."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from gpubalance.node import host_details, libraries
from gpubalance.node.host_details import read_host
from gpubalance.record.probe import HostDetail
from tests.node.planted import plant, plant_gpu


def test_this_machine_can_be_read() -> None:
    host = read_host()
    assert host.uptime_s is not None
    assert host.uptime_s > 0
    assert HostDetail.model_validate_json(host.model_dump_json()) == host


def test_nothing_at_all_is_all_null_with_reasons(tmp_path: Path) -> None:
    host = read_host(tmp_path, {})
    for name in ("uptime_s", "virtual_machine", "kernel_modules", "driver_file_version", "pci_gpus", "iommu",
                 "acs_bridges", "kernel_log", "sys_nice", "shm_total_bytes"):  # fmt: skip
        assert getattr(host, name) is None
        assert host.missing[name]
    assert (host.device_files, host.numa_nodes, host.infiniband_ports, host.holders) == ({}, [], [], [])
    json.dumps(host.model_dump(), allow_nan=False)


# Kernel and processor


def test_kernel_and_uptime(tmp_path: Path) -> None:
    modules = "nvidia_uvm 1 0 - Live 0x0\nnvidia 2 1 - Live 0x0\next4 3 1 - Live 0x0\nnouveau 1 0 - Live 0x0\n"
    plant(tmp_path, {"proc/uptime": "14591.41 16313.39\n", "proc/modules": modules})
    host = read_host(tmp_path, {})
    assert host.uptime_s == 14591.41
    assert host.kernel_modules == ["nouveau", "nvidia", "nvidia_uvm"]


@pytest.mark.parametrize(
    ("text", "guest"),
    [
        ("processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n", True),
        ("flags\t\t: fpu vme lahf_lm\n", False),
        ("vmx flags\t: hypervisor\nflags\t: fpu\n", False),
        ("processor\t: 0\nFeatures\t: fp asimd\n", None),
    ],
)
def test_the_processor_tells_a_guest(tmp_path: Path, text: str, guest: bool | None) -> None:
    plant(tmp_path, {"proc/cpuinfo": text})
    assert read_host(tmp_path, {}).virtual_machine is guest


@pytest.mark.parametrize(("release", "wsl"), [("5.15.90.1-microsoft-standard-WSL2", True), ("6.8.0-45-generic", False)])
def test_wsl_names_itself(tmp_path: Path, release: str, wsl: bool) -> None:
    plant(tmp_path, {"proc/sys/kernel/osrelease": f"{release}\n"})
    assert read_host(tmp_path, {}).wsl is wsl


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Jan  6 2026", "580.159.04"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build", "550.90.07"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57  Tue", "470.57"),
        ("nonsense", None),
    ],
)
def test_the_modules_version(tmp_path: Path, line: str, version: str | None) -> None:
    plant(tmp_path, {"proc/driver/nvidia/version": f"{line}\nGCC version: gcc 12.3.0\n"})
    assert read_host(tmp_path, {}).driver_file_version == version


def test_numa_nodes(tmp_path: Path) -> None:
    node = "sys/devices/system/node"
    plant(
        tmp_path,
        {
            f"{node}/node10/cpulist": "8-15\n",
            f"{node}/node2/cpulist": "0-7\n",
            f"{node}/node2/meminfo": "Node 2 MemTotal:       1024 kB\nNode 2 MemFree:  7 kB\n",
            f"{node}/possible": "0-10\n",
        },
    )
    found = read_host(tmp_path, {}).numa_nodes
    assert [(each.node, each.cpus, each.memory_total_bytes) for each in found] == [
        (2, "0-7", 1048576),
        (10, "8-15", None),
    ]


def test_infiniband_ports(tmp_path: Path) -> None:
    folder = "sys/class/infiniband"
    plant(
        tmp_path,
        {
            f"{folder}/mlx5_0/ports/1/state": "4: ACTIVE\n",
            f"{folder}/mlx5_0/ports/1/link_layer": "InfiniBand\n",
            f"{folder}/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            f"{folder}/mlx5_1/ports/1/state": "1: DOWN\n",
        },
    )
    assert read_host(tmp_path, {}).infiniband_ports == [
        "mlx5_0 port 1: ACTIVE, InfiniBand, 400 Gb/sec (4X NDR)",
        "mlx5_1 port 1: DOWN",
    ]


# Device files


def test_device_files_that_open(tmp_path: Path) -> None:
    plant(
        tmp_path, dict.fromkeys(("dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0", "dev/nvidia-caps/x", "dev/sda"), "")
    )
    assert read_host(tmp_path, {}).device_files == {
        "/dev/nvidiactl": "ok",
        "/dev/nvidia-uvm": "ok",
        "/dev/nvidia0": "ok",
    }


def test_a_control_file_that_is_not_there_or_does_not_open_is_said(tmp_path: Path) -> None:
    plant(tmp_path, {"dev/nvidia0": ""})
    (tmp_path / "dev/nvidiactl").mkdir()
    assert read_host(tmp_path, {}).device_files == {
        "/dev/nvidiactl": "EISDIR",
        "/dev/nvidia-uvm": "ENOENT",
        "/dev/nvidia0": "ok",
    }


def test_a_revoked_device_and_a_file_without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, dict.fromkeys(("dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia3"), ""))
    opened: list[str] = []
    true_open = os.open

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if "nvidia" not in Path(path).name:
            return true_open(path, flags, *more, **named)
        opened.append(Path(path).name)
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(host_details.os, "open", refuse)
    monkeypatch.setattr(host_details.os, "access", lambda path, mode: False)
    assert read_host(tmp_path, {}).device_files == {
        "/dev/nvidiactl": "EPERM",
        "/dev/nvidia-uvm": "EPERM",
        "/dev/nvidia3": "EACCES",
    }
    assert opened == ["nvidiactl", "nvidia-uvm"]  # opening a GPU's own file would wake it


# Name of the host


def test_loopback_is_here_and_a_name_that_no_one_has_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_details.is_local_name("127.0.0.1")
    monkeypatch.setattr(
        host_details.socket,
        "getaddrinfo",
        lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))],  # TEST-NET-1, never ours
    )
    assert not host_details.is_local_name("elsewhere")


@pytest.mark.parametrize("error", [socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")])
def test_a_name_that_leads_nowhere(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(host_details.socket, "getaddrinfo", fail)
    assert not host_details.is_local_name("nosuchhost-xyz")


def test_a_resolver_that_never_answers_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(host_details, "NAME_LIMIT_S", 0.05)
    monkeypatch.setattr(host_details, "is_local_name", lambda name: release.wait(60))
    try:
        host = read_host(tmp_path, {})
    finally:
        release.set()
    assert (host.hostname_resolves, host.missing["hostname_resolves"]) == (None, "no answer within 0.05 s")


# Libraries


def test_every_nccl_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ["opt/lib/libnccl.so.2.18", "venv/nvidia/nccl/lib/libnccl.so.2", "usr/lib64/libnccl.so.2"]
    plant(tmp_path, dict.fromkeys(files, ""))
    (tmp_path / "opt/lib/libnccl.so.2").symlink_to("libnccl.so.2.18")
    monkeypatch.setattr(libraries.sys, "path", ["", "/venv", "relative"])
    found = libraries.nccl_libraries(tmp_path, {"LD_LIBRARY_PATH": "/opt/lib::relative:/none"})
    assert found == [str(tmp_path / name) for name in files]


def test_a_folder_that_may_not_be_listed_holds_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuse)
    assert libraries.nccl_libraries(tmp_path, {"LD_LIBRARY_PATH": "/root/lib"}) == []


def test_the_bindings_file_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, {"pynvml.py": "raise RuntimeError"})
    monkeypatch.setattr(libraries.sys, "path", [str(tmp_path)])
    values, missing = libraries.read_libraries(tmp_path, {})
    assert (values["binding_file"], missing) == (str(tmp_path / "pynvml.py"), {})


def test_a_binding_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries.sys, "path", [str(tmp_path)])
    values, missing = libraries.read_libraries(tmp_path, {})
    assert (values["binding_file"], missing) == (None, {"binding_file": "not installed"})


def test_gpus_and_events_come_through(tmp_path: Path) -> None:
    plant_gpu(tmp_path, "pci0000:00/0000:00:06.0")
    plant(tmp_path, {"dev/kmsg": "4,0,1,-;NVRM: Xid (PCI:0000:00:06): 79, GPU has fallen off the bus.\n"})
    host = read_host(tmp_path, {})
    assert [gpu.bus_id for gpu in host.pci_gpus or []] == ["0000:00:06.0"]
    assert [(event.kind, event.xid) for event in host.kernel_log or []] == [("xid", 79)]

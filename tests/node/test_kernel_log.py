"""Events of the kernel's log: which lines count, what is kept of them, and what is left unsaid."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from gpubalance.node import kernel_log
from tests.node.planted import plant, plant_gpu

GPU, BRIDGE = "0000:5e:00.0", "0000:5d:00.0"
NEAR = {GPU, BRIDGE}

XID_79 = "NVRM: Xid (PCI:0000:5e:00): 79, pid=4711, name=python3, GPU has fallen off the bus."
NARROW = (
    f"pci {GPU}: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at {BRIDGE} "
    "(capable of 126.016 Gb/s with 8.0 GT/s PCIe x16 link)"
)


@pytest.mark.parametrize(
    ("line", "kind", "number", "bus_id", "fatal"),
    [
        (XID_79, "xid", 79, "0000:5e:00", None),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "xid", 14, "0000:03:00", None),
        (f"NVRM: GPU {GPU}: GPU has fallen off the bus.", "fallen_off", None, GPU, None),
        ("NVRM: GPU at PCI:0000:5e:00: GPU has fallen off the bus", "fallen_off", None, "0000:5e:00", None),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
         "sxid", 12028, "0000:c1:00.0", False),
        ("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
         "sxid", 20034, "0000:a9:00.0", True),
        (f"pcieport {BRIDGE}: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)",
         "aer", None, BRIDGE, False),
        (f"pcieport {BRIDGE}: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)",
         "aer", None, BRIDGE, False),
        (f"nvidia {GPU}: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
         "aer", None, GPU, False),
        (f"nvidia {GPU}: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
         "aer", None, GPU, True),
        (f"pcieport {BRIDGE}: AER: Uncorrected (Fatal) error received: {GPU}", "aer", None, GPU, True),
        (f"pcieport {BRIDGE}: AER: Uncorrectable (Fatal) error message received from {GPU}", "aer", None, GPU, True),
        ("nvidia 0000:77:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer", "aer", None, "0000:77:00.0",
         False),
        (NARROW, "downtrained", None, GPU, None),
    ],
)  # fmt: skip
def test_lines_of_the_driver_and_of_the_pci_core(
    line: str, kind: str, number: int | None, bus_id: str, fatal: bool | None
) -> None:
    event = kernel_log.parse_message(line, NEAR)
    assert event is not None
    assert (event["kind"], event["xid"], event["bus_id"], event["fatal"]) == (kind, number, bus_id, fatal)


@pytest.mark.parametrize(
    "line",
    [
        "nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer",
        "pcieport 0000:00:1c.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0",
        f"pcieport {BRIDGE}: AER: Corrected error received: {GPU}",  # the next line says it again, with its layer
        NARROW.replace(f"pci {GPU}", "pci 0000:01:00.0"),
        f"pci {GPU}: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Severity 0 Engine instance 32 Sub-engine instance 00",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04",
        "",
    ],
)
def test_other_lines_and_other_devices_do_not_count(line: str) -> None:
    assert kernel_log.parse_message(line, NEAR) is None


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (XID_79, "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."),
        ("NVRM: Xid (PCI:0000:5e:00): 31, pid='<unknown>', name=<unknown>, Ch 00000008",
         "NVRM: Xid (PCI:0000:5e:00): 31, Ch 00000008"),
        ("NVRM: Xid (PCI:0000:5e:00): 43, pid=99, Ch 00000010", "NVRM: Xid (PCI:0000:5e:00): 43, Ch 00000010"),
        ("NVRM: Xid (PCI:0000:5e:00): 45, name=alices model", "NVRM: Xid (PCI:0000:5e:00): 45"),
    ],
)  # fmt: skip
def test_nothing_is_kept_of_the_process(line: str, kept: str) -> None:
    event = kernel_log.parse_message(line, NEAR)
    assert event is not None
    assert event["text"] == kept


# Reading


def log_of(root: Path, *messages: str, first: int = 0) -> dict[str, Any]:
    """What is read of a log with these messages, in the form of /dev/kmsg."""
    lines = [f"4,{first + n},{1000 * n},-;{message}\n SUBSYSTEM=pci\n" for n, message in enumerate(messages)]
    values, missing = kernel_log.read_kernel_log(plant(root, {"dev/kmsg": "".join(lines)}))
    return {"events": values["kernel_log"], "missing": missing.get("kernel_log")}


def test_events_are_in_the_order_of_the_log(tmp_path: Path) -> None:
    plant_gpu(tmp_path, f"pci0000:5d/{BRIDGE}/{GPU}")
    aer = f"pcieport {BRIDGE}: PCIe Bus Error: severity=Corrected, type=Data Link Layer"
    read = log_of(tmp_path, "Linux version 6.1", aer, XID_79)
    assert [event["kind"] for event in read["events"]] == ["aer", "xid"]
    assert read["missing"] is None


def test_a_quiet_log_is_an_empty_list(tmp_path: Path) -> None:
    assert log_of(tmp_path, "Linux version 6.1") == {"events": [], "missing": None}


def test_the_newest_events_are_kept_and_the_others_counted(tmp_path: Path) -> None:
    lines = [f"NVRM: Xid (PCI:0000:5e:00): {number}, x" for number in range(1, 206)]
    read = log_of(tmp_path, *lines)
    assert [event["xid"] for event in read["events"]] == list(range(6, 206))
    assert read["missing"] == "the newest 200 of 205 events"


def test_a_ring_that_went_round_is_said(tmp_path: Path) -> None:
    assert log_of(tmp_path, "Linux", first=7) == {"events": [], "missing": "older lines were overwritten"}


def test_a_log_without_a_line_is_no_log(tmp_path: Path) -> None:
    assert log_of(tmp_path) == {"events": None, "missing": "empty"}


def test_without_the_file_the_reason_is_kept(tmp_path: Path) -> None:
    assert kernel_log.read_kernel_log(tmp_path) == ({"kernel_log": None}, {"kernel_log": "ENOENT"})


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
def test_a_container_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(kernel_log.os, "open", refuse)
    assert kernel_log.read_kernel_log(tmp_path) == ({"kernel_log": None}, {"kernel_log": "NO_PERMISSION"})


def test_a_console_under_that_name_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").symlink_to("/dev/null")
    _, missing = kernel_log.read_kernel_log(tmp_path)
    assert missing == {"kernel_log": "/dev/kmsg is not the kernel's log here"}


def test_nobody_waits_for_a_line_that_has_not_come(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    writer = os.open(tmp_path / "dev/kmsg", os.O_RDWR)
    try:
        os.write(writer, f"4,0,0,-;{XID_79}\n".encode())
        values, _ = kernel_log.read_kernel_log(tmp_path)
    finally:
        os.close(writer)
    assert [event["xid"] for event in values["kernel_log"]] == [79]


def test_a_record_that_was_overwritten_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, {"dev/kmsg": ""})
    answers: list[bytes | OSError] = [b"4,3,0,-;Linux\n", BrokenPipeError(), f"4,9,0,-;{XID_79}\n".encode(), b""]

    def read(*_: object) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(kernel_log.os, "read", read)
    values, _ = kernel_log.read_kernel_log(tmp_path)
    assert [event["xid"] for event in values["kernel_log"]] == [79]


def test_an_error_while_reading_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "dev/kmsg").mkdir(parents=True)
    assert kernel_log.read_kernel_log(tmp_path)[1] == {"kernel_log": "EISDIR"}

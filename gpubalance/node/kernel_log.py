"""What the kernel's log says of GPUs and their bus since boot: Xid, SXid, PCIe errors, links that trained down.

Read from /dev/kmsg, without waiting. Containers and users without rights are usually refused, which is no fault.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from gpubalance.node.part import Part, error_name, part
from gpubalance.node.pci import bridges_above, gpu_addresses

MOST_EVENTS = 200
_MOST_RECORDS = 500_000
"""More than the largest ring holds: the end of a log that is written to as fast as it is read."""

_RECORD_BYTES = 8192
"""The kernel refuses to give a record to a buffer that is too small; its own limit is 8 KiB."""

_KMSG = os.makedev(1, 11)
"""Some containers have a console under that name, and reading that would eat what somebody types."""

_BUS = r"(?P<bus_id>[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)"
_PATTERNS = (
    ("xid", re.compile(rf"NVRM: Xid \((?:PCI:)?{_BUS}\): (?P<xid>\d+).*")),
    ("sxid", re.compile(rf"nvidia-nvswitch\S*: SXid \(PCI:{_BUS}\): (?P<xid>\d+), (?P<severity>Fatal|Non-fatal).*")),
    ("fallen_off", re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?{_BUS}\S*:? .*fallen off the bus")),
    ("aer", re.compile(rf"(?P<driver>\S+) {_BUS}: (?:AER: )?PCIe Bus Error: severity=(?P<severity>[^,]+).*")),
    ("aer", re.compile(rf"\S+ \S+: AER: .*(?P<severity>Uncorrect\w+ \(Fatal\)) error\D* {_BUS}")),
    ("downtrained", re.compile(rf"\S+ {_BUS}: .*limited by .* PCIe x\d+ link .*")),
)
"""Lines of the NVIDIA driver (NVRM, nvidia-nvswitch) and of Linux's PCI core (drivers/pci: pci.c, pcie/aer.c)."""

_PERSONAL = re.compile(r",? (?:pid|name)=(?:'[^']*'|[^,]*)")
"""Which process had the GPU is nobody's business here."""


def read_kernel_log(root: Path) -> Part:
    """The newest events since boot; `missing` says why there are none, or what the log no longer holds."""
    text = _read_log(root / "dev/kmsg")
    if isinstance(text, str):
        return part("kernel_log", None, text)
    records = [line.partition(";") for line in text.decode(errors="replace").splitlines() if not line.startswith(" ")]
    if not records:
        return part("kernel_log", None, "empty")
    gpus = gpu_addresses(root) or []
    nearby = {*gpus, *(bridge for gpu in gpus for bridge in bridges_above(root, gpu))}
    events = list(_events((message for _, _, message in records), nearby))
    return {"kernel_log": events[-MOST_EVENTS:]}, _gaps(records[0][0], len(events))


def _gaps(first_prefix: str, events: int) -> dict[str, str]:
    """A record begins with priority,number,...: the first number is 0 unless the ring has gone round."""
    number = first_prefix.split(",")[1:2]
    said = [f"the newest {MOST_EVENTS} of {events} events"] if events > MOST_EVENTS else []
    said += ["older lines were overwritten"] if number != ["0"] else []
    return {"kernel_log": "; ".join(said)} if said else {}


def _read_log(path: Path) -> bytes | str:
    """All that can be read now, or why nothing can."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        return error_name(error)
    try:
        kind = os.fstat(handle)
        if stat.S_ISCHR(kind.st_mode) and kind.st_rdev != _KMSG:
            return "/dev/kmsg is not the kernel's log here"
        return b"".join(_chunks(handle))
    except OSError as error:
        return error_name(error)
    finally:
        os.close(handle)


def _chunks(handle: int) -> Iterator[bytes]:
    for _ in range(_MOST_RECORDS):
        try:
            chunk = os.read(handle, _RECORD_BYTES)
        except BlockingIOError:  # all was read
            return
        except BrokenPipeError:  # a record was overwritten before it was read; the next one is there
            continue
        if not chunk:
            return
        yield chunk


def _events(messages: Iterable[str], nearby: Collection[str]) -> Iterator[dict[str, Any]]:
    for message in messages:
        event = parse_message(message, nearby)
        if event is not None:
            yield event


def parse_message(message: str, nearby: Collection[str]) -> dict[str, Any] | None:
    """The event that a line speaks of; errors of the bus count for the GPUs and bridges that are given."""
    for kind, pattern in _PATTERNS:
        match = pattern.search(message)
        if match is None:
            continue
        said = match.groupdict()
        ours = said["bus_id"] in nearby or str(said.get("driver")).startswith("nvidia")
        return _event(kind, match[0], said) if ours or kind not in ("aer", "downtrained") else None
    return None


def _event(kind: str, text: str, said: dict[str, str]) -> dict[str, Any]:
    return {
        "kind": kind,
        "text": _PERSONAL.sub("", text),
        "xid": int(said["xid"]) if "xid" in said else None,
        "bus_id": said["bus_id"],
        "fatal": said["severity"].endswith(("Fatal", "(Fatal)")) if "severity" in said else None,
    }

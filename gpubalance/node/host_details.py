"""The host around the GPUs, as far as this process may see it. Never hangs and never raises: what cannot be read is
null, with its reason in `missing`.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpubalance.node.holders import read_holders
from gpubalance.node.host import read_text
from gpubalance.node.kernel_log import read_kernel_log
from gpubalance.node.libraries import read_libraries
from gpubalance.node.limits import read_limits
from gpubalance.node.nccl_conf import read_nccl_conf
from gpubalance.node.part import Part, merged, names_in, part
from gpubalance.node.pci import read_pci
from gpubalance.record.probe import HostDetail

NAME_LIMIT_S = 1.5
"""A resolver without a server tries for 5 s and more."""

_MODULES = re.compile(r"nvidia|nouveau|nv_peer_mem|gdrdrv|vfio|ib_core|ib_uverbs|mlx5")
_CONTROL_FILES = ("nvidiactl", "nvidia-uvm")
"""Safe to open; opening nvidia0 would wake a GPU that is not in persistence mode, and a sick one never answers."""

_GPU_FILE = re.compile(r"nvidia\d+")
_MODULE_VERSION = re.compile(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)*)\s")


def read_host(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> HostDetail:
    """All of HostDetail, in well under 2 s. `root` is where /proc, /sys, /dev and /etc are."""
    resolves = _ask_in_background(lambda: is_local_name(socket.gethostname()), NAME_LIMIT_S)
    values, missing = merged(
        [
            _kernel(root),
            _driver(root),
            read_pci(root),
            read_limits(root),
            read_kernel_log(root),
            read_holders(root),
            read_libraries(root, environment),
            ({"numa_nodes": _numa_nodes(root), "infiniband_ports": list(_infiniband_ports(root))}, {}),
            ({"nccl_conf": read_nccl_conf(root, environment)}, {}),
            part("hostname_resolves", resolves(), f"no answer within {NAME_LIMIT_S:g} s"),
        ]
    )
    return HostDetail(**values, missing=missing)


def _kernel(root: Path) -> Part:
    uptime = (read_text(root / "proc/uptime") or "").split()
    modules = read_text(root / "proc/modules")
    release = read_text(root / "proc/sys/kernel/osrelease") or ""
    return merged(
        [
            part("uptime_s", float(uptime[0]) if uptime else None),
            ({"wsl": "microsoft" in release.lower()}, {}),
            part("virtual_machine", _virtual_machine(root), "the CPU does not say"),
            part("kernel_modules", None if modules is None else _module_names(modules)),
        ]
    )


def _module_names(text: str) -> list[str]:
    names = sorted(line.split(" ")[0] for line in text.splitlines())
    return [name for name in names if _MODULES.match(name)]


def _virtual_machine(root: Path) -> bool | None:
    """x86 shows a flag to guests; other processors list no such thing."""
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return "hypervisor" in value.split()
    return None


def _driver(root: Path) -> Part:
    version = _MODULE_VERSION.search(read_text(root / "proc/driver/nvidia/version") or "")
    return merged(
        [
            part("driver_file_version", version[1] if version else None, "no /proc/driver/nvidia/version"),
            ({"device_files": _device_files(root)}, {}),
        ]
    )


def _device_files(root: Path) -> dict[str, str]:
    """None at all where the driver has made none; else a control file that is not there is said so."""
    names = names_in(root / "dev") or []
    gpus = [name for name in names if _GPU_FILE.fullmatch(name)]
    if not gpus and not set(_CONTROL_FILES) & set(names):
        return {}
    found = {f"/dev/{name}": _opening(root / "dev" / name) for name in _CONTROL_FILES}
    return found | {f"/dev/{name}": _access(root / "dev" / name) for name in gpus}


def _opening(path: Path) -> str:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "error")
    return "ok"


def _access(path: Path) -> str:
    return "ok" if os.access(path, os.R_OK | os.W_OK) else "EACCES"


def _numa_nodes(root: Path) -> list[dict[str, Any]]:
    folder = root / "sys/devices/system/node"
    numbers = [int(name[4:]) for name in names_in(folder) or [] if re.fullmatch(r"node\d+", name)]
    return [_numa_node(folder / f"node{number}", number) for number in sorted(numbers)]


def _numa_node(folder: Path, number: int) -> dict[str, Any]:
    total = re.search(r"MemTotal:\s+(\d+) kB", read_text(folder / "meminfo") or "")
    cpus = read_text(folder / "cpulist") or ""
    return {"node": number, "cpus": cpus, "memory_total_bytes": int(total[1]) * 1024 if total else None}


def _infiniband_ports(root: Path) -> Iterator[str]:
    """mlx5_0 port 1: ACTIVE, InfiniBand, 400 Gb/sec (4X NDR)."""
    devices = root / "sys/class/infiniband"
    for device in names_in(devices) or []:
        for port in names_in(devices / device / "ports") or []:
            folder = devices / device / "ports" / port
            state = (read_text(folder / "state") or "unknown").rpartition(": ")[2]
            more = [read_text(folder / name) for name in ("link_layer", "rate")]
            yield f"{device} port {port}: {', '.join([state, *(word for word in more if word)])}"


def _ask_in_background(question: Callable[[], bool], limit_s: float) -> Callable[[], bool | None]:
    """Ask now and wait later: the answer, or None once the limit is over, counted from now."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(question()), daemon=True)
    thread.start()
    deadline = time.monotonic() + limit_s

    def answer() -> bool | None:
        thread.join(max(0.0, deadline - time.monotonic()))
        return answers[0] if answers else None

    return answer


def is_local_name(name: str) -> bool:
    """True when a name leads to an address of this machine."""
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # UnicodeError: a name that DNS cannot carry
        return False
    return any(_is_local(family, address) for family, _, _, _, address in found)


def _is_local(family: int, address: tuple[Any, ...]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True

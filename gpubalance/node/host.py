"""The host around the GPUs: cores that can really be used, memory, container, and the variables that steer CUDA."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

import psutil

STEERING = re.compile(
    r"(CUDA_|NVIDIA_VISIBLE_DEVICES$|NVIDIA_DRIVER_CAPABILITIES$|NCCL_|TORCH_NCCL_|GLOO_|TP_SOCKET_IFNAME$|OMP_|MKL_|"
    r"OPENBLAS_NUM_THREADS$|PYTORCH_|TORCH_CPP_LOG_LEVEL$|TORCH_DISTRIBUTED_DEBUG$|RANK$|LOCAL_RANK$|WORLD_SIZE$|"
    r"NSIGHT_CUDA_DEBUGGER$|NSYS_PROFILING_SESSION_ID$|NVTX_INJECTION64_PATH$|COMPUTE_PROFILE$|TORCH_CUDA_SANITIZER$|"
    r"LOCAL_WORLD_SIZE$|MASTER_ADDR$|MASTER_PORT$|TORCHELASTIC_RUN_ID$|SLURM_(JOB_ID|PROCID|NTASKS|STEP_ID)$)"
)
"""Names of variables that are recorded. Everything else in the environment may be a secret."""


SECRET = re.compile(r"TOKEN|KEY|PASSWORD|SECRET|CREDENTIAL", re.IGNORECASE)
"""A variable of such a name is never recorded, whatever it steers."""


def steering_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that steer CUDA, NCCL, gloo and OpenMP."""
    return {
        name: value for name, value in sorted(environment.items()) if STEERING.match(name) and not SECRET.search(name)
    }


def gpu_evidence(root: Path = Path("/")) -> list[str]:
    """Why this machine must have an NVIDIA GPU, whatever the driver says. Empty means: surely none.

    0x10de is NVIDIA's PCI vendor id; 0x03 is the PCI class of display and 3D controllers.
    """
    evidence = [f"PCI device {path.name}" for path in sorted((root / "sys/bus/pci/devices").glob("*")) if is_gpu(path)]
    nodes = sorted(path.name for path in (root / "dev").glob("nvidia*") if path.name != "nvidia-caps")
    evidence += [f"/dev/{name}" for name in nodes]
    if (root / "dev/dxg").exists():
        evidence.append("/dev/dxg (WSL)")
    return evidence


def is_gpu(device: Path) -> bool:
    """True for a folder of /sys/bus/pci/devices that is an NVIDIA display or 3D controller."""
    return read_text(device / "vendor") == "0x10de" and (read_text(device / "class") or "").startswith("0x03")


def read_text(path: Path) -> str | None:
    """The file without space around it, or None when it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def cgroup_quota(root: Path = Path("/"), self_cgroup: str | None = None) -> float | None:
    """CPU cores that the control group allows, the smallest on the way up to the root; None is no limit."""
    text = self_cgroup if self_cgroup is not None else read_text(root / "proc/self/cgroup")
    limits = [quota for folder in cgroup_folders(root, text or "", "cpu") if (quota := _quota(folder)) is not None]
    return min(limits, default=None)


def cgroup_folders(root: Path, text: str, controller: str) -> Iterable[Path]:
    """Folders of this process's control group and its parents, for one controller, innermost first."""
    mount = root / "sys/fs/cgroup"
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = mount / controllers if controllers else mount
        folder = base / path.lstrip("/")
        yield from [folder, *[parent for parent in folder.parents if parent.is_relative_to(base)]]


def _quota(folder: Path) -> float | None:
    v2 = read_text(folder / "cpu.max")
    v1 = (read_text(folder / "cpu.cfs_quota_us"), read_text(folder / "cpu.cfs_period_us"))
    allowed, _, period = v2.partition(" ") if v2 else (v1[0] or "max", " ", v1[1] or "0")
    if allowed in ("max", "-1") or not period.isdecimal() or int(period) == 0:
        return None
    return int(allowed) / int(period)


def oom_kills(root: Path = Path("/")) -> int:
    """How often the kernel killed somebody of this control group for lack of memory; 0 where it does not say."""
    for folder in cgroup_folders(root, read_text(root / "proc/self/cgroup") or "", "memory"):
        for line in (
            read_text(folder / "memory.events") or read_text(folder / "memory.oom_control") or ""
        ).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdecimal():
                return int(count)
    return 0


def usable_cores() -> list[int]:
    """Cores of this process's affinity mask."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def effective_cpus(cores: int, quota: float | None) -> float:
    """Cores that can really run at once: the smaller of the affinity mask and the control group's quota."""
    return float(cores) if quota is None else min(float(cores), quota)


def ranks_that_fit(effective: float) -> int:
    """CPU ranks that can have a core each, at most two: two are enough to show the method."""
    return max(1, min(2, math.floor(effective)))


def cpu_model() -> str | None:
    """The processor's name as the kernel gives it."""
    for line in (read_text(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return None


def container_kind(root: Path = Path("/")) -> str | None:
    """The container this process is in, as far as it can be seen from inside."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    return None


def shm_free_bytes() -> int | None:
    """Free bytes of /dev/shm, where NCCL puts its segments when peers cannot reach each other directly."""
    try:
        return shutil.disk_usage("/dev/shm").free  # noqa: S108  (it is the thing that is measured)
    except OSError:
        return None


def package_versions(names: Iterable[str]) -> dict[str, str | None]:
    """Installed versions without importing anything; None is not installed."""
    found: dict[str, str | None] = {}
    for name in names:
        found[name] = None
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def process_owner(pid: int) -> tuple[str | None, str | None]:
    """Name and owner of a process, None where it is not visible here."""
    try:
        process = psutil.Process(pid)
        return process.name(), process.username()
    except (psutil.Error, KeyError):  # KeyError: a uid without a name
        return None, None

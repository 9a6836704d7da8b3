"""S1: a driver, a torch and GPUs that fit together, and one binding to NVML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of
from gpubalance.checks.probing.measured import labels_of, numbers_of
from gpubalance.checks.probing.presence import gpu_is_due, visible_gpus
from gpubalance.record.probe import Probe

NVML_WORDS = {
    "LIBRARY_NOT_FOUND": ("its library libnvidia-ml is not here", "install the driver, or give the container its GPUs"),
    "DRIVER_NOT_LOADED": ("the kernel driver is not loaded", "load the nvidia module; `dmesg` says why it would not"),
    "LIB_RM_VERSION_MISMATCH": (
        "driver library and kernel module differ in version",
        "reboot, or reload the nvidia kernel module",
    ),
    "NO_PERMISSION": ("no permission", "give this user or container access to /dev/nvidia*"),
    "UNKNOWN": ("unknown error", "see check S5; outside a container `dmesg | grep -i nvrm` says more"),
    "GPU_IS_LOST": ("a GPU fell off the bus", "reset that GPU or reboot the node"),
    "SHADOWED": ("the old package pynvml stands before nvidia-ml-py", "pip uninstall pynvml"),
}
"""Reason of NVML -> what it means, and what to do."""

_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def versions(probe: Probe) -> list[Finding]:
    """S1: NVML answers, and this torch can run on these GPUs under this driver; otherwise nothing can be said.

    NVIDIA's compatibility rules: a driver serves any CUDA of its own major version and below (12 needs driver 525),
    and a kernel built for sm_XY runs on the same X with Y and above. "Cannot run" is unknown, not a sick GPU.
    """
    found = [*_driver_problem(probe), *_torch_problem(probe)]
    if not found:
        found.append(_versions_found(probe))
    return [*found, *_shadowed(probe), *_nccl_libraries(probe)]


def _versions_found(probe: Probe) -> Finding:
    node, torch = probe.node, probe.torch
    assert node is not None
    known = (("driver", node.driver_version), ("NVML", node.nvml_version), ("CUDA of the driver",
             node.cuda_driver_version), ("torch", torch.version), ("CUDA of torch", torch.cuda),
             ("cuDNN", torch.cudnn), ("NCCL", torch.nccl), ("kernel", node.kernel))  # fmt: skip
    evidence = [f"{name} {value}" for name, value in known if value is not None]
    if not gpu_is_due(probe):
        text = f"no GPU here: torch {torch.version} is not held against a driver"
        return finding(State.SKIP, text, evidence=tuple(evidence))
    if torch.cuda is not None and _newer_minor(torch.cuda, node.cuda_driver_version):
        evidence.append(f"CUDA {torch.cuda} on a driver of the same major version, which serves it (all but new PTX)")
    text = f"driver {node.driver_version or 'unnamed'} for CUDA {node.cuda_driver_version or 'unnamed'}"
    return finding(State.PASS, f"{text}, torch {torch.version}", evidence=tuple(evidence))


def _newer_minor(torch: str, driver: str | None) -> bool:
    return driver is not None and [int(part) for part in torch.split(".")] > [int(part) for part in driver.split(".")]


def _driver_problem(probe: Probe) -> Iterator[Finding]:
    node = probe.node
    if node is None:
        step = "see `dmesg | grep -i nvrm`; a driver that hangs needs a reboot"
        yield finding(State.UNKNOWN, f"the NVIDIA driver did not answer: {probe.nvml_failed}", next_step=step)
    elif node.nvml_error is not None and gpu_is_due(probe):
        reason = node.nvml_error.partition(":")[0]
        words, step = NVML_WORDS.get(reason, (reason, "see `dmesg | grep -i nvrm`"))
        versions_seen = (("kernel module", probe.host.driver_file_version), ("NVML library", node.nvml_version))
        evidence = [f"{name} {value}" for name, value in versions_seen if value is not None]
        if probe.torch.cuda_available:
            evidence.append(f"torch sees {counted(probe.torch.device_count or 0, 'CUDA device')} all the same")
        yield finding(
            State.UNKNOWN,
            f"NVML cannot be used: {words}",
            observed=node.nvml_error,
            evidence=tuple(evidence),
            next_step=step,
        )


def _torch_problem(probe: Probe) -> Iterator[Finding]:
    """The first thing that keeps torch from these GPUs; the rest would follow from it."""
    torch, gpus = probe.torch, gpus_of(probe)
    if torch.error is not None:
        missing = "No module named 'torch'" in torch.error
        yield finding(
            State.UNKNOWN,
            "torch is not installed beside gpubalance" if missing else f"torch cannot be asked: {torch.error}",
            evidence=(torch.error,) if missing else (),
            next_step="install gpubalance into the environment whose torch is to be tested",
        )
    elif torch.cuda is None and gpu_is_due(probe):
        there = f"{counted(len(gpus), 'GPU')} found" if gpus else "there should be a GPU"
        step = "install a torch that is built for CUDA"
        yield finding(State.UNKNOWN, f"{there}, but torch {torch.version} has no CUDA", next_step=step)
    elif gpus:
        yield from _cuda_problem(probe, gpus)


def _cuda_problem(probe: Probe, gpus: list[Gpu]) -> Iterator[Finding]:
    torch = probe.torch
    driver = probe.node.cuda_driver_version if probe.node is not None else None
    visible = visible_gpus(probe, gpus)
    uncovered = [gpu for gpu in visible if torch.arch_list and not _has_kernel(torch.arch_list, gpu)]
    if driver is not None and torch.cuda is not None and _major(torch.cuda) > _major(driver):
        yield finding(
            State.UNKNOWN,
            f"torch {torch.version} needs CUDA {_major(torch.cuda)}, this driver has {driver}",
            observed=f"driver for CUDA {driver}",
            expected=f"a driver for CUDA {_major(torch.cuda)}",
            next_step="update the driver, or install a torch for its CUDA version",
        )
    elif not visible:
        step = "unset CUDA_VISIBLE_DEVICES, or name a GPU in it"
        yield finding(State.UNKNOWN, f"{counted(len(gpus), 'GPU')} found, all hidden from torch", next_step=step)
    elif uncovered:
        yield from _no_kernel(probe, uncovered)
    elif not torch.cuda_available:
        step = "read what `python -c 'import torch; torch.zeros(1, device=\"cuda\")'` says"
        text = f"{counted(len(visible), 'GPU')} found, but torch {torch.version} can use none"
        yield finding(State.UNKNOWN, text, next_step=step)


def _no_kernel(probe: Probe, gpus: list[Gpu]) -> Iterator[Finding]:
    for capability in sorted({_capability(gpu) or (0, 0) for gpu in gpus}):
        without = [gpu for gpu in gpus if _capability(gpu) == capability]
        yield finding(
            State.UNKNOWN,
            f"torch {probe.torch.version} has no kernels for {numbers_of(without)}",
            subject=labels_of(without),
            observed=f"compute capability {capability[0]}.{capability[1]}",
            expected=f"one of {' '.join(probe.torch.arch_list)}",
            next_step="install a torch that is built for this compute capability",
        )


def _capability(gpu: Gpu) -> tuple[int, int] | None:
    major, minor = gpu.number("compute_capability_major"), gpu.number("compute_capability_minor")
    return None if major is None or minor is None else (int(major), int(minor))


def _has_kernel(architectures: Sequence[str], gpu: Gpu) -> bool:
    capability = _capability(gpu)
    return capability is None or any(covers(name, capability) for name in architectures)


def covers(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether code built for sm_90, compute_90 (PTX), sm_90a (that GPU only) or sm_100f (its family) runs there."""
    found = _ARCHITECTURE.fullmatch(architecture)
    if found is None:
        return False
    built = int(found[2]), int(found[3])
    if found[4] == "a":
        return built == capability
    if found[1] == "compute" and not found[4]:
        return built <= capability
    return built[0] == capability[0] and built[1] <= capability[1]


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _shadowed(probe: Probe) -> Iterator[Finding]:
    """The package pynvml owns the same name as nvidia-ml-py; its folder wins over the other's file."""
    installed = probe.node.packages.get("pynvml") if probe.node is not None else None
    file = probe.host.binding_file
    folder = file is not None and "/pynvml/" in file
    if installed is not None or folder:
        yield finding(
            State.WARN,
            f"the package pynvml{f' {installed}' if installed else ''} stands in the way of nvidia-ml-py",
            evidence=(f"`import pynvml` takes {file}",) if file is not None else (),
            next_step="pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py",
        )


def _nccl_libraries(probe: Probe) -> Iterator[Finding]:
    packages = probe.node.packages if probe.node is not None else {}
    nccl = [f"{name} {version}" for name, version in packages.items() if "nccl" in name and version is not None]
    if len(nccl) > 1 or len(probe.host.nccl_libraries) > 1:
        taken = probe.torch.nccl_library
        yield finding(
            State.INFO,
            f"{max(len(nccl), len(probe.host.nccl_libraries))} NCCL libraries are installed here",
            observed=f"torch loads {taken}" if taken is not None else None,
            evidence=(*nccl, *probe.host.nccl_libraries),
        )


CHECKS = (Check("S1", "versions", versions, "NVIDIA's CUDA compatibility rules; DCGM, imbue", required=True),)

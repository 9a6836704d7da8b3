"""S4, S5: what stands between a process and its GPUs: kernel modules, and the rights of a container."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.probing.check import Check, finding, gpus_of
from gpubalance.checks.probing.presence import gpu_is_due
from gpubalance.record.probe import Probe


def modules(probe: Probe) -> list[Finding]:
    """S4: nvidia and nvidia_uvm are loaded, /dev/nvidia-uvm opens, and nouveau is not there (gpu-operator, DCGM).

    A container's /proc and /dev may hide what is loaded; a CUDA that starts is proof enough.
    """
    host, node = probe.host, probe.node
    if not gpu_is_due(probe):
        return []
    if host.wsl:
        return [finding(State.SKIP, "under WSL the kernel driver is the one of Windows")]
    found = [*_nouveau(probe)]
    if _cuda_starts(probe):
        found.append(finding(State.PASS, "CUDA starts, so the kernel modules are there"))
    elif host.kernel_modules is not None and (node is None or node.container is None):
        found += list(_modules_missing(host.kernel_modules)) or list(_uvm_file(probe))
    elif host.device_files:
        found += _uvm_file(probe)
    else:
        reason = host.missing.get("kernel_modules", "not readable here")
        found.append(finding(State.UNKNOWN, f"kernel modules not seen: {reason}"))
    return found or [finding(State.PASS, "kernel modules are loaded and /dev/nvidia-uvm opens")]


def _cuda_starts(probe: Probe) -> bool:
    """With that variable torch asks NVML instead, which needs less of the driver than CUDA does."""
    environment = probe.node.environment if probe.node is not None else {}
    return bool(probe.torch.cuda_available) and environment.get("PYTORCH_NVML_BASED_CUDA_CHECK") != "1"


def _nouveau(probe: Probe) -> Iterator[Finding]:
    if "nouveau" in (probe.host.kernel_modules or ()):
        step = "blacklist nouveau, rebuild the initial RAM disk and reboot"
        yield finding(State.FAIL, "the driver nouveau is loaded, which keeps NVIDIA's off the GPUs", next_step=step)


def _modules_missing(loaded: Sequence[str]) -> Iterator[Finding]:
    missing = [name for name in ("nvidia", "nvidia_uvm") if name not in loaded]
    for name in missing[:1]:  # without nvidia the other cannot be there
        yield finding(State.FAIL, f"the kernel module {name} is not loaded", next_step=f"modprobe {name}")


def _uvm_file(probe: Probe) -> Iterator[Finding]:
    """EPERM on a file that is there is the word of a container's device rules, not of the node: S5 speaks of it."""
    error = probe.host.device_files.get("/dev/nvidia-uvm", "ENOENT")
    if error == "EPERM":
        yield finding(State.UNKNOWN, "/dev/nvidia-uvm not opened: this container may not")
    elif error != "ok":
        step = "run nvidia-modprobe -u, or give the container /dev/nvidia-uvm"
        yield finding(State.FAIL, f"/dev/nvidia-uvm cannot be opened ({error}): no CUDA without it", next_step=step)


def container_rights(probe: Probe) -> list[Finding]:
    """S5: the container may still open its GPUs. When systemd reloads on the host, device rules that the runtime set
    behind its back are gone (nvidia-container-toolkit): the node is well, yet nothing can be measured from inside.
    """
    denied = [name for name, error in probe.host.device_files.items() if error == "EPERM"]
    if not denied and probe.node is None:
        return [finding(State.UNKNOWN, "rights of a container not judged: the driver did not answer")]
    if not denied and probe.node is not None and probe.node.container is None:
        return [finding(State.SKIP, "not in a container")]
    unknown = _unknown_errors(probe)
    if not denied and not unknown:
        return [_allowed(probe)]
    return [
        finding(
            State.UNKNOWN,
            "this container may not open its GPUs any more"
            if denied
            else "NVML gives an unknown error in this container",
            evidence=(
                *(f"{name}: EPERM" for name in denied),
                *unknown,
                "likely: a reload of systemd on the host dropped the device rules; running jobs go on, new ones fail",
            ),
            next_step="recreate the container with its device files named (--device), or use the cgroupfs driver",
        )
    ]


def _allowed(probe: Probe) -> Finding:
    if "ok" in probe.host.device_files.values() or gpus_of(probe):
        return finding(State.PASS, "this container may use its GPUs")
    return finding(State.SKIP, "this container was given no GPU")


def _unknown_errors(probe: Probe) -> list[str]:
    """NVML's code 999, at its start or on whole GPUs."""
    node = probe.node
    if node is None:
        return []
    whole = ["NVML: unknown error"] if node.nvml_error == "UNKNOWN" else []
    return whole + [
        f"{gpu.name}: unknown error" for gpu in gpus_of(probe) if gpu.device.missing.get("uuid") == "UNKNOWN"
    ]


CHECKS = (
    Check("S4", "modules of the kernel", modules, "nvidia and nvidia_uvm, no nouveau; gpu-operator, DCGM"),
    Check("S5", "rights of the container", container_rights, "nvidia-container-toolkit", required=True),
)

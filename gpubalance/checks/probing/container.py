"""C1 to C4, C6, C7: what the container or the operating system around a job takes away from it."""

from __future__ import annotations

from collections.abc import Iterator

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Check, finding
from gpubalance.checks.probing.host import not_read, of_host
from gpubalance.checks.probing.pci_isolation import isolation
from gpubalance.checks.probing.shared_memory import shared_memory
from gpubalance.checks.probing.visible_devices import visibility
from gpubalance.record.gates import gates_of
from gpubalance.record.probe import Probe
from gpubalance.thresholds import plain

MIB = 2**20


@of_host
def process_limits(probe: Probe) -> list[Finding]:
    """C2: WARN on fewer than 4096 open files (ours), on an unlimited stack, and on a limit of locked memory where there
    is InfiniBand (else INFO: it is every system's default and then costs nothing).

    NCCL's documentation asks for unlimited locked memory; with an unlimited stack glibc gives each thread a small
    fixed one.
    """
    return [*_limits(probe)] or [finding(State.PASS, "limits of files, stack and locked memory are right")]


def _limits(probe: Probe) -> Iterator[Finding]:
    files, locked = probe.host.open_files_limit, probe.host.memlock_limit_bytes
    enough = gates_of(probe)["open_files_warn"]
    if files is not None and files < enough:
        yield finding(
            State.WARN,
            f"only {files} open files are allowed",
            observed=str(files),
            expected=f"at least {plain(enough)}",
            next_step="raise it: ulimit -n 65536, or --ulimit nofile=65536",
        )
    if probe.host.stack_limit_bytes is None:
        yield finding(
            State.WARN,
            "the stack is unlimited, which shrinks the stacks of threads",
            observed="unlimited",
            expected="8 MiB",
            next_step="set it: ulimit -s 8192",
        )
    if locked is not None:
        yield finding(
            State.WARN if probe.host.infiniband_ports else State.INFO,
            f"locked memory is limited to {locked / MIB:.4g} MiB",
            observed=f"{locked} bytes",
            expected="unlimited",
            evidence=("NCCL locks memory for InfiniBand, which is why only that makes it a warning",),
            next_step="lift it: ulimit -l unlimited, or --ulimit memlock=-1",
        )


@of_host
def host_access(probe: Probe) -> list[Finding]:
    """C3: what NCCL must see of the host: the PCI tree in /sys (WARN), and CAP_SYS_NICE to bind host memory (INFO).

    Both from NCCL's documentation on containers. WSL has no PCI tree of GPUs.
    """
    nice = probe.host.sys_nice
    found = []
    if probe.host.pci_gpus is None and not probe.host.wsl:
        found.append(
            finding(
                State.WARN,
                "/sys shows no PCI tree: NCCL cannot choose paths by distance",
                evidence=(probe.host.missing.get("pci_gpus", "not read"),),
                next_step="mount /sys in the container",
            )
        )
    if nice is None:
        found.append(not_read(probe, "sys_nice", "rights of this process"))
    if nice is False:
        message = "no CAP_SYS_NICE: host buffers may lie far from their GPU"
        found.append(finding(State.INFO, message, next_step="give the container --cap-add SYS_NICE"))
    return found or [finding(State.PASS, "NCCL sees the PCI tree and may bind host memory")]


@of_host
def several_nodes(probe: Probe) -> list[Finding]:
    """C7: what only training on several nodes needs: InfiniBand, GPUDirect RDMA, a name that leads here. INFO.

    NCCL's documentation asks for nvidia_peermem or DMA-BUF.
    """
    found = []
    ports, modules = probe.host.infiniband_ports, probe.host.kernel_modules
    if ports:
        active = sum(": ACTIVE" in port for port in ports)
        peermem = "not known" if modules is None else "loaded" if "nvidia_peermem" in modules else "not loaded"
        message = f"{active} of {counted(len(ports), 'InfiniBand port')} active, nvidia_peermem {peermem}"
        found.append(finding(State.INFO, message, evidence=tuple(ports)))
    if probe.host.hostname_resolves is False:
        message = "the host name does not lead here: one node works, several do not"
        found.append(finding(State.INFO, message, next_step="add the host name to /etc/hosts or to DNS"))
    if probe.host.hostname_resolves is None:
        found.append(not_read(probe, "hostname_resolves", "address of the host name"))
    return found or [finding(State.PASS, "the host name leads here; there is no InfiniBand")]


_NCCL_DOCS = "NCCL's documentation, troubleshooting"

CHECKS = (
    Check("C1", "shared memory", shared_memory, f"{_NCCL_DOCS}; 64 MiB is Docker's default"),
    Check("C2", "limits of this process", process_limits, f"{_NCCL_DOCS}; 4096 files is a guess"),
    Check("C3", "access to the host", host_access, f"{_NCCL_DOCS}, containers"),
    Check("C4", "PCI isolation", isolation, f"{_NCCL_DOCS}, PCI access control services"),
    Check("C6", "visible devices", visibility, "CUDA's programming guide, environment variables"),
    Check("C7", "several nodes", several_nodes, f"{_NCCL_DOCS}, networking"),
)

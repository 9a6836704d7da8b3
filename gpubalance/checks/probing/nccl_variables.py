"""C5's table: variables that steer NCCL, CUDA and torch, and what each costs when somebody left it set.

Meanings and defaults are those of NCCL's documentation of its environment variables and of torch's ProcessGroupNCCL.
"""

from __future__ import annotations

from dataclasses import dataclass

OFF = frozenset({"0"})


@dataclass(frozen=True)
class Variable:
    """What one variable costs. Values are compared in upper case; an empty one counts as unset, as in NCCL."""

    name: str
    effect: str
    """Follows NAME=VALUE in a sentence."""
    why: str
    """What it costs, one sentence."""
    bad: frozenset[str] | None = None
    """Values that cost something; null is all but the harmless ones."""
    harmless: frozenset[str] = frozenset()
    """The default, or as good as unset."""

    def costs(self, value: str) -> bool:
        """True when this value takes something away."""
        given = value.strip().upper()
        if not given or given in self.harmless:
            return False
        return self.bad is None or given in self.bad


def _switched_on(name: str, effect: str, why: str) -> Variable:
    """A variable that costs something unless it is 0, its default."""
    return Variable(name, effect, why, harmless=OFF)


def _switched_off(name: str, effect: str, why: str) -> Variable:
    """A variable that costs something when it is 0; it is on or automatic by default."""
    return Variable(name, effect, why, bad=OFF)


COSTLY = (
    _switched_on("NCCL_P2P_DISABLE", "sends peer traffic through host memory",
                 "Direct copies between GPUs are off, which costs up to a factor of ten where there is NVLink."),
    Variable("NCCL_P2P_LEVEL", "overrides where GPUs talk directly",
             "NCCL would choose by topology; too short a distance sends traffic through host memory."),
    _switched_on("NCCL_P2P_DIRECT_DISABLE", "adds a copy within one process",
                 "GPUs of one process no longer read each other's buffers, so that data is copied once more."),
    _switched_on("NCCL_SHM_DISABLE", "sends host traffic over the network",
                 "GPUs without direct access to each other use the network card instead of host memory."),
    _switched_on("NCCL_NVB_DISABLE", "forbids a detour over a third GPU",
                 "GPUs without a common NVLink fall back to PCIe although a neighbour could forward."),
    _switched_on("NCCL_IB_DISABLE", "leaves InfiniBand and RoCE unused",
                 "Traffic between nodes goes through TCP sockets and the CPU."),
    Variable("NCCL_NET_GDR_LEVEL", "overrides when the network card reaches a GPU",
             "NCCL would choose by topology; too short a distance stages all traffic in host memory."),
    Variable("NCCL_ALGO", "forces an algorithm",
             "NCCL would choose the fastest for each size; a forced one is slow for some and may fail for others."),
    Variable("NCCL_PROTO", "forces a protocol",
             "NCCL would choose the fastest for each size; LL128 on a platform that lacks it corrupts data."),
    Variable("NCCL_BUFFSIZE", "overrides the buffer size",
             "Smaller buffers cost bandwidth, larger ones GPU and shared memory.", harmless=frozenset({"4194304"})),
    Variable("NCCL_NTHREADS", "overrides threads per block",
             "Fewer threads cannot fill the links; more take room from the training's own kernels."),
    Variable("NCCL_MIN_NCHANNELS", "forces more channels",
             "Each channel takes a multiprocessor away from the training's own kernels."),
    Variable("NCCL_MAX_NCHANNELS", "caps the channels", "Too few channels cannot fill the links."),
    Variable("NCCL_MIN_CTAS", "forces more blocks",
             "Each block takes a multiprocessor away from the training's own kernels."),
    Variable("NCCL_MAX_CTAS", "caps the blocks", "Too few blocks cannot fill the links."),
    _switched_on("NCCL_CHECKS_DISABLE", "turns argument checks off",
                 "A wrong call crashes or hangs, where it would have been refused with a reason."),
    _switched_on("NCCL_CHECK_POINTERS", "checks every pointer at every call",
                 "Each call waits for the driver's answer, which slows small collectives down."),
    Variable("NCCL_LAUNCH_MODE", "changes how kernels are launched",
             "Launches of one process are synchronised, which costs time at every call.",
             bad=frozenset({"GROUP"})),
    _switched_off("NCCL_CUMEM_ENABLE", "turns the newer memory allocation off",
                  "Registered user buffers, NVLS buffers and multi-node NVLink need it."),
    _switched_off("NCCL_CUMEM_HOST_ENABLE", "puts host buffers into /dev/shm",
                  "Host buffers are not bound to a NUMA node and need a large /dev/shm."),
    _switched_off("NCCL_DMABUF_ENABLE", "turns DMA-BUF off",
                  "Without nvidia_peermem the network card cannot reach GPU memory any more."),
    _switched_off("NCCL_MNNVL_ENABLE", "turns multi-node NVLink off",
                  "Nodes of one NVLink domain talk over the network."),
    _switched_on("NCCL_PXN_DISABLE", "forbids relays to the rail's own network card",
                 "Traffic of all-to-all crosses switches that it could avoid."),
    _switched_off("NCCL_RAS_ENABLE", "turns NCCL's own diagnosis off",
                  "When a job hangs nobody can ask its ranks where they are."),
    _switched_on("NCCL_SET_STACK_SIZE", "resizes CUDA's stack at start",
                 "Memory is set aside for the largest kernel, and the first launch of each kernel gets slower."),
    Variable("NCCL_DEBUG", "writes a line for every call",
             "Every call waits for the log.", bad=frozenset({"TRACE"})),
    _switched_on("NCCL_BLOCKING_WAIT", "makes every wait block the CPU",
                 "An old name of torch's; the CPU can no longer run ahead of the GPU."),
    _switched_on("TORCH_NCCL_BLOCKING_WAIT", "makes every wait block the CPU",
                 "The CPU can no longer run ahead of the GPU, so that gaps open between kernels."),
    _switched_off("NCCL_ASYNC_ERROR_HANDLING", "leaves a job with a dead rank hanging",
                  "An old name of torch's; without it nobody ends a job whose peer died."),
    _switched_off("TORCH_NCCL_ASYNC_ERROR_HANDLING", "leaves a job with a dead rank hanging",
                  "Without it nobody ends a job whose peer died."),
    _switched_on("TORCH_NCCL_DESYNC_DEBUG", "records every collective in the store",
                 "Each collective writes to the store at its begin and end."),
    _switched_on("TORCH_NCCL_ENABLE_TIMING", "times every collective",
                 "Each collective records one more event."),
    _switched_on("TORCH_NCCL_NAN_CHECK", "searches every buffer for NaN",
                 "Each collective reads its whole buffer once more."),
    Variable("TORCH_DISTRIBUTED_DEBUG", "compares every collective over all ranks",
             "Each collective is preceded by another one that compares its shape.", bad=frozenset({"DETAIL"})),
)  # fmt: skip

NVLS = Variable(
    "NCCL_NVLS_ENABLE",
    "turns reduction in the NVSwitch off",
    "All-reduce goes around a ring, at up to two thirds of the bandwidth that the switch could give.",
    bad=OFF,
)
"""Counts where there is something to lose: four GPUs or more of Hopper or newer on NVSwitches."""

SELECTORS = {
    "NCCL_SOCKET_IFNAME": "chooses the network interface",
    "NCCL_SOCKET_FAMILY": "chooses between IPv4 and IPv6",
    "NCCL_IB_HCA": "chooses the InfiniBand cards",
    "NCCL_IB_GID_INDEX": "chooses the RoCE address",
    "NCCL_IB_TC": "chooses the traffic class",
    "NCCL_IB_SL": "chooses the service level",
    "NCCL_CROSS_NIC": "chooses whether rings change network cards",
    "NCCL_NET": "chooses the network transport",
    "NCCL_NET_PLUGIN": "chooses the network plugin",
    "NCCL_TUNER_PLUGIN": "chooses the tuner plugin",
    "NCCL_TOPO_FILE": "replaces the detected topology",
    "NCCL_CONF_FILE": "names a file with more of them",
    "NCCL_DEBUG": "makes NCCL talk",
    "NCCL_DEBUG_SUBSYS": "chooses what NCCL talks of",
    "NCCL_DEBUG_FILE": "chooses where NCCL's log goes",
    "GLOO_SOCKET_IFNAME": "chooses gloo's network interface",
}
"""Right or wrong only for the network at hand."""

LABELS = frozenset({"NCCL_VERSION"})
"""A label of container images that nobody reads."""

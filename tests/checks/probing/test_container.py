"""C1 to C4, C6, C7: what surrounds a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpubalance.checks.finding import State
from gpubalance.record.node import DroppedEntry, Visibility
from gpubalance.record.probe import Peer, Probe, StaleFile
from tests.checks.probing.helpers import make_probe, only, states, worst

MIB, GIB = 2**20, 2**30
HOST_CHECKS = ["C1", "C2", "C3", "C4", "C7"]


@pytest.mark.parametrize("check", [*HOST_CHECKS, "C5", "C6"])
def test_a_healthy_node_warns_of_nothing(check: str) -> None:
    seen = Visibility(asked=None, visible=[0, 1])
    assert states(only(check, make_probe(host={"pci_gpus": []}, node={"visibility": seen}))) == ["pass"]


@pytest.mark.parametrize("check", HOST_CHECKS)
def test_the_host_of_simulated_gpus_is_not_judged(check: str) -> None:
    assert states(only(check, make_probe(simulated="h200x8", host={"shm_total_bytes": None}))) == ["skip"]


@pytest.mark.parametrize("check", [*HOST_CHECKS, "C5", "C6"])
def test_without_a_gpu_every_rule_still_answers(check: str) -> None:
    assert worst(only(check, make_probe(count=0))).state is not State.FAIL


# C1


def peers(gpu: int, count: int, read: str | None = "OK") -> list[Peer]:
    return [Peer(nvml_index=n, topology="NODE", p2p={"read": read}) for n in range(count) if n != gpu]


def shared(total: float, free: float | None = None, *, count: int = 8, read: str | None = "OK", **values: Any) -> Probe:
    size = {"shm_total_bytes": int(total), "shm_free_bytes": int(total if free is None else free)}
    gpus = [{"peers": peers(index, count, read)} for index in range(count)]
    host = {**size, **values.pop("host", {})}
    return make_probe(gpus, host=host, **values)


@pytest.mark.parametrize(
    ("total", "free", "count", "read", "state"),
    [
        (GIB, None, 8, "OK", State.PASS),
        (GIB - 1, None, 8, "OK", State.WARN),
        (64 * MIB, None, 8, "OK", State.WARN),  # peers reach each other: workers of a DataLoader may still lack it
        (64 * MIB, None, 8, "CHIPSET_NOT_SUPPORTED", State.FAIL),  # 8 x 7 x 10 MB = 560 MB
        (64 * MIB, None, 8, None, State.FAIL),
        (64 * MIB + 1, None, 8, "CHIPSET_NOT_SUPPORTED", State.WARN),
        (64 * MIB, None, 4, "CHIPSET_NOT_SUPPORTED", State.FAIL),  # 120 MB
        (64 * MIB, None, 3, "CHIPSET_NOT_SUPPORTED", State.WARN),  # 60 MB still fit into 67.1 MB
        (64 * MIB, None, 2, "CHIPSET_NOT_SUPPORTED", State.WARN),
        (64 * MIB, None, 1, "OK", State.WARN),
        (2 * GIB, 560_000_000, 8, "CHIPSET_NOT_SUPPORTED", State.PASS),
        (2 * GIB, 559_999_999, 8, "CHIPSET_NOT_SUPPORTED", State.WARN),
        (2 * GIB, 1, 8, "OK", State.PASS),
    ],
)
def test_shared_memory(total: int, free: int | None, count: int, read: str | None, state: State) -> None:
    (finding,) = only("C1", shared(total, free, count=count, read=read))
    assert finding.state is state
    assert len(finding.message) <= 68
    assert bool(finding.next_step) == (state is not State.PASS)


@pytest.mark.parametrize(
    ("variables", "state"),
    [
        ({"NCCL_P2P_DISABLE": "1"}, State.FAIL),
        ({"NCCL_P2P_DISABLE": "0"}, State.WARN),
        ({"NCCL_P2P_DISABLE": ""}, State.WARN),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, State.WARN),
    ],
)
def test_a_variable_may_send_traffic_through_shared_memory(variables: dict[str, str], state: State) -> None:
    assert only("C1", shared(64 * MIB, node={"environment": variables}))[0].state is state
    assert only("C1", shared(64 * MIB, host={"nccl_conf": {"/etc/nccl.conf": variables}}))[0].state is state


def test_one_blocked_pair_is_enough() -> None:
    gpus = [{"peers": peers(index, 8, "OK" if index else "CHIPSET_NOT_SUPPORTED")} for index in range(8)]
    host = {"shm_total_bytes": 64 * MIB, "shm_free_bytes": 64 * MIB}
    assert only("C1", make_probe(gpus, host=host))[0].state is State.FAIL


def test_a_gpu_that_never_answered_counts_as_not_reachable() -> None:
    gpus: list[dict[str, Any]] = [{"failed": "nvmlDeviceGetP2PStatus did not return"}, *[{}] * 7]
    host = {"shm_total_bytes": 64 * MIB, "shm_free_bytes": 64 * MIB}
    assert only("C1", make_probe(gpus, host=host))[0].state is State.FAIL


@pytest.mark.parametrize("reason", ["NO_PERMISSION", "ENOENT"])
def test_shared_memory_that_cannot_be_read_is_unknown(reason: str) -> None:
    host = {"shm_total_bytes": None, "shm_free_bytes": None, "missing": {"shm_total_bytes": reason}}
    (finding,) = only("C1", make_probe(host=host))
    assert (finding.state, finding.message) == (State.UNKNOWN, f"size of shared memory not read: {reason}")


def test_old_segments_are_told_with_age_and_owner() -> None:
    stale = [
        StaleFile(name="nccl-a", size_bytes=10 * MIB, age_s=7200, owner="alice"),
        StaleFile(name="torch_b", size_bytes=2 * MIB, age_s=5400, owner="uid 7"),
    ]
    found = only("C1", make_probe(host={"shm_stale": stale}))
    assert states(found) == ["pass", "info"]
    assert found[1].message == "2 segments in /dev/shm, 12 MiB, older than 1 h"
    assert found[1].evidence == ("nccl-a: 10485760 bytes, 2.0 h, alice", "torch_b: 2097152 bytes, 1.5 h, uid 7")


# C2


@pytest.mark.parametrize(
    ("host", "messages"),
    [
        ({"open_files_limit": 4096}, []),
        ({"open_files_limit": 4095}, ["only 4095 open files are allowed"]),
        ({"open_files_limit": None}, []),
        ({"stack_limit_bytes": None}, ["the stack is unlimited, which shrinks the stacks of threads"]),
        ({"memlock_limit_bytes": 65536, "infiniband_ports": ["mlx5_0/1"]}, ["locked memory is limited to 0.0625 MiB"]),
        ({"open_files_limit": 1024, "memlock_limit_bytes": 8 * MIB, "infiniband_ports": ["mlx5_0/1"]},
         ["only 1024 open files are allowed", "locked memory is limited to 8 MiB"]),
    ],
)  # fmt: skip
def test_limits_of_the_process(host: dict[str, Any], messages: Sequence[str]) -> None:
    found = only("C2", make_probe(host=host))
    assert [f.message for f in found if f.state is State.WARN] == list(messages)
    assert all(f.next_step for f in found if f.state is State.WARN)
    assert states(found) == (["warn"] * len(messages) or ["pass"])


def test_locked_memory_matters_to_infiniband_only() -> None:
    (found,) = only("C2", make_probe(host={"memlock_limit_bytes": 8 * MIB}))
    assert (found.state, found.message) == (State.INFO, "locked memory is limited to 8 MiB")


# C3


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ({}, ["pass"]),
        ({"pci_gpus": None, "missing": {"pci_gpus": "not readable"}}, ["warn"]),
        ({"pci_gpus": None, "wsl": True}, ["pass"]),
        ({"sys_nice": False}, ["info"]),
        ({"sys_nice": None}, ["unknown"]),
        ({"pci_gpus": None, "sys_nice": False}, ["warn", "info"]),
    ],
)
def test_access_to_the_host(host: dict[str, Any], expected: Sequence[str]) -> None:
    assert states(only("C3", make_probe(host={"pci_gpus": [], **host}))) == list(expected)


# C4


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ({}, ["pass"]),
        ({"iommu": "passthrough"}, ["pass"]),
        ({"iommu": "translated"}, ["warn"]),
        ({"iommu": None}, ["unknown"]),
        ({"acs_bridges": ["0000:5d:00.0"]}, ["warn"]),
        ({"acs_bridges": None, "missing": {"acs_bridges": "NO_PERMISSION"}}, ["unknown"]),
        ({"acs_bridges": ["0000:5d:00.0"], "iommu": "translated"}, ["warn", "warn"]),
        ({"acs_bridges": ["0000:5d:00.0"], "iommu": "translated", "virtual_machine": True}, ["skip"]),
        ({"acs_bridges": None, "virtual_machine": True}, ["skip"]),
        ({"acs_bridges": ["0000:5d:00.0"], "iommu": "translated", "virtual_machine": None}, ["info", "info"]),
        ({"virtual_machine": None}, ["pass"]),
    ],
)
def test_isolation_on_the_pci_bus(host: dict[str, Any], expected: Sequence[str]) -> None:
    assert states(only("C4", make_probe(host=host))) == list(expected)


def test_redirecting_bridges_are_named() -> None:
    (finding,) = only("C4", make_probe(host={"acs_bridges": ["0000:5d:00.0", "0000:9d:00.0"]}))
    assert finding.message == "ACS sends traffic between GPUs through the CPU at 2 bridges"
    assert finding.subject == "0000:5d:00.0, 0000:9d:00.0"


@pytest.mark.parametrize("count", [0, 1])
def test_one_gpu_talks_to_nobody(count: int) -> None:
    assert states(only("C4", make_probe(count=count, host={"iommu": "translated"}))) == ["skip"]


# C6


def visible(asked: str | None, seen: Sequence[int], dropped: Sequence[tuple[str, str]] = (), **node: Any) -> Probe:
    entries = [DroppedEntry(entry=entry, reason=reason) for entry, reason in dropped]
    return make_probe(node={"visibility": Visibility(asked=asked, visible=list(seen), dropped=entries), **node})


def test_all_gpus_are_visible() -> None:
    assert [f.message for f in only("C6", visible(None, [0, 1]))] == ["2 of 2 GPUs visible"]


def test_a_choice_is_no_fault() -> None:
    (finding,) = only("C6", visible("1", [1]))
    assert (finding.state, finding.message) == (State.PASS, "1 of 2 GPUs visible, as CUDA_VISIBLE_DEVICES asks")


def test_each_entry_that_yields_nothing_warns_with_its_reason() -> None:
    found = only("C6", visible("0,7,1", [0], [("7", "there are only 2 GPUs"), ("1", "not read: the list ends at '7'")]))
    assert states(found) == ["warn", "warn"]
    assert found[0].message == "CUDA_VISIBLE_DEVICES: '7' gives no GPU"
    assert found[0].evidence == ("'7': there are only 2 GPUs",)
    assert found[0].observed == "CUDA_VISIBLE_DEVICES=0,7,1"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("", "CUDA_VISIBLE_DEVICES: '' gives no GPU"),
        ("GPU-00000009-aaaa-bbbb-cccc-000000000009", "CUDA_VISIBLE_DEVICES: an entry gives no GPU"),
    ],
)
def test_a_message_holds_no_uuid(entry: str, message: str) -> None:
    (finding,) = only("C6", visible(entry, [], [(entry, "why")]))
    assert (finding.message, finding.evidence) == (message, (f"{entry!r}: why",))


def test_a_repeated_gpu_is_one_warning() -> None:
    reason = "'0' repeats a device, which empties the list"
    (finding,) = only("C6", visible("0,0", [], [("0", reason), ("0", reason)]))
    assert finding.state is State.WARN
    assert finding.message == "CUDA_VISIBLE_DEVICES names a GPU twice, which hides all"


@pytest.mark.parametrize(
    ("order", "names", "told"),
    [
        (None, ("NVIDIA H200", "NVIDIA H200"), False),
        (None, ("NVIDIA H200", "NVIDIA A100"), True),
        ("FASTEST_FIRST", ("NVIDIA H200", "NVIDIA A100"), True),
        ("PCI_BUS_ID", ("NVIDIA H200", "NVIDIA A100"), False),
    ],
)
def test_cuda_counts_different_models_in_its_own_order(order: str | None, names: Sequence[str], told: bool) -> None:
    environment = {"CUDA_DEVICE_ORDER": order} if order else {}
    seen = Visibility(asked=None, visible=[0, 1])
    devices = [{"name": name} for name in names]
    found = only("C6", make_probe(devices=devices, node={"visibility": seen, "environment": environment}))
    assert states(found) == ["pass", *(["info"] if told else [])]


@pytest.mark.parametrize(
    ("asked", "told"),
    [("all", False), ("", False), ("void", False), ("none", False), ("0,1", False), ("0", True), ("0,1,2", True),
     ("GPU-a,GPU-b", False), ("0:0,0:1,1:0", False), ("MIG-a", False), ("0,0", True)],
)  # fmt: skip
def test_what_the_container_runtime_was_asked_for(asked: str, told: bool) -> None:
    found = only("C6", visible(None, [0, 1], environment={"NVIDIA_VISIBLE_DEVICES": asked}))
    assert states(found) == ["pass", *(["info"] if told else [])]


@pytest.mark.parametrize(
    "probe",
    [
        make_probe().model_copy(update={"node": None, "nvml_failed": "nvmlInit did not return"}),
        make_probe(
            count=0, node={"visibility": None, "nvml_error": "LIBRARY_NOT_FOUND", "gpu_evidence": ["/dev/nvidia0"]}
        ),
    ],
)
def test_without_nvml_it_is_not_known_what_is_visible(probe: Probe) -> None:
    (finding,) = only("C6", probe)
    assert finding.state is State.UNKNOWN
    assert "nvmlInit" in finding.message or "LIBRARY_NOT_FOUND" in finding.message


def test_where_there_is_no_gpu_none_can_be_hidden() -> None:
    node = {"visibility": None, "nvml_error": "LIBRARY_NOT_FOUND", "gpu_evidence": []}
    assert states(only("C6", make_probe(count=0, node=node))) == ["skip"]


# C7


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ({}, ["pass"]),
        ({"hostname_resolves": False}, ["info"]),
        ({"hostname_resolves": None, "missing": {"hostname_resolves": "no answer within 1.5 s"}}, ["unknown"]),
        ({"infiniband_ports": ["mlx5_0 port 1: ACTIVE"]}, ["info"]),
        ({"infiniband_ports": ["mlx5_0 port 1: DOWN"], "hostname_resolves": False}, ["info", "info"]),
    ],
)
def test_what_several_nodes_would_need(host: dict[str, Any], expected: Sequence[str]) -> None:
    assert states(only("C7", make_probe(host=host))) == list(expected)


@pytest.mark.parametrize(
    ("modules", "words"),
    [(["nvidia", "nvidia_peermem"], "loaded"), (["nvidia"], "not loaded"), (None, "not known")],
)
def test_ports_are_counted(modules: list[str] | None, words: str) -> None:
    ports = ["mlx5_0 port 1: ACTIVE, InfiniBand", "mlx5_1 port 1: DOWN"]
    (finding,) = only("C7", make_probe(host={"infiniband_ports": ports, "kernel_modules": modules}))
    assert finding.message == f"1 of 2 InfiniBand ports active, nvidia_peermem {words}"
    assert finding.evidence == tuple(ports)

"""The host around the GPUs, read from a made-up root."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubalance.node import host


def plant(root: Path, files: Mapping[str, str]) -> Path:
    """Write these files below the root."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def pci(root: Path, address: str, vendor: str, kind: str) -> Path:
    folder = f"sys/bus/pci/devices/{address}"
    return plant(root, {f"{folder}/vendor": f"{vendor}\n", f"{folder}/class": f"{kind}\n"})


# Control groups


@pytest.mark.parametrize(
    ("cpu_max", "cores"),
    [("50000 100000\n", 0.5), ("400000 100000\n", 4.0), ("150000 100000", 1.5), ("max 100000\n", None), ("", None)],
)
def test_the_quota_of_the_own_group_is_in_cores(tmp_path: Path, cpu_max: str, cores: float | None) -> None:
    plant(tmp_path, {"sys/fs/cgroup/pod/cpu.max": cpu_max})
    assert host.cgroup_quota(tmp_path, "0::/pod\n") == cores


def test_the_smallest_quota_on_the_way_to_the_root_counts(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "sys/fs/cgroup/kubepods/cpu.max": "800000 100000",
            "sys/fs/cgroup/kubepods/burst/cpu.max": "400000 100000",
            "sys/fs/cgroup/kubepods/burst/pod/cpu.max": "max 100000",
            "sys/fs/cgroup/kubepods/other/cpu.max": "100000 100000",
        },
    )
    assert host.cgroup_quota(tmp_path, "0::/kubepods/burst/pod") == 4.0


def test_a_quota_at_the_root_of_a_containers_namespace_counts(tmp_path: Path) -> None:
    plant(tmp_path, {"sys/fs/cgroup/cpu.max": "250000 100000"})
    assert host.cgroup_quota(tmp_path, "0::/") == 2.5


def test_a_group_that_is_not_mounted_here_falls_back_to_its_parents(tmp_path: Path) -> None:
    plant(tmp_path, {"sys/fs/cgroup/cpu.max": "300000 100000"})
    assert host.cgroup_quota(tmp_path, "0::/docker/0123456789ab") == 3.0


def test_a_group_may_have_a_colon_in_its_name(tmp_path: Path) -> None:
    plant(tmp_path, {"sys/fs/cgroup/a:b/cpu.max": "300000 100000"})
    assert host.cgroup_quota(tmp_path, "0::/a:b") == 3.0


def test_nothing_outside_the_mount_is_read(tmp_path: Path) -> None:
    plant(tmp_path, {"sys/fs/cpu.max": "100000 100000", "sys/cpu.max": "100000 100000"})
    assert host.cgroup_quota(tmp_path, "0::/a/b") is None


V1 = "12:cpu,cpuacct:/docker/abc\n11:cpuset:/docker/abc\n5:memory:/docker/abc\n1:name=systemd:/docker/abc\n"


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [("50000", "100000", 0.5), ("400000", "100000", 4.0), ("20000", "10000", 2.0), ("-1", "100000", None)],
)
def test_the_first_version_keeps_quota_and_period_in_two_files(
    tmp_path: Path, quota: str, period: str, cores: float | None
) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct/docker/abc"
    plant(tmp_path, {f"{folder}/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/cpu.cfs_period_us": f"{period}\n"})
    assert host.cgroup_quota(tmp_path, V1) == cores


def test_the_first_version_takes_the_smallest_of_nested_groups(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/cpu,cpuacct"
    plant(
        tmp_path,
        {
            f"{base}/docker/cpu.cfs_quota_us": "150000",
            f"{base}/docker/cpu.cfs_period_us": "100000",
            f"{base}/docker/abc/cpu.cfs_quota_us": "-1",
            f"{base}/docker/abc/cpu.cfs_period_us": "100000",
            f"{base}/cpu.cfs_quota_us": "-1",
            f"{base}/cpu.cfs_period_us": "100000",
        },
    )
    assert host.cgroup_quota(tmp_path, V1) == 1.5


def test_other_controllers_of_the_first_version_are_not_asked(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory/docker/abc"
    plant(tmp_path, {f"{folder}/cpu.cfs_quota_us": "100000", f"{folder}/cpu.cfs_period_us": "100000"})
    assert host.cgroup_quota(tmp_path, V1) is None


def test_the_kernels_own_word_on_the_group_is_read_from_proc(tmp_path: Path) -> None:
    plant(tmp_path, {"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/cpu.max": "50000 100000"})
    assert host.cgroup_quota(tmp_path) == 0.5


def test_a_machine_without_control_groups_has_no_quota(tmp_path: Path) -> None:
    assert host.cgroup_quota(tmp_path) is None


@pytest.mark.parametrize("period", ["0", "", "x"])
def test_a_period_that_makes_no_sense_is_no_limit(tmp_path: Path, period: str) -> None:
    plant(tmp_path, {"sys/fs/cgroup/cpu.max": f"50000 {period}"})
    assert host.cgroup_quota(tmp_path, "0::/") is None


# Cores


@pytest.mark.parametrize(
    ("cores", "quota", "effective"), [(12, 4.0, 4.0), (12, None, 12.0), (2, 64.0, 2.0), (8, 0.5, 0.5)]
)
def test_the_smaller_of_affinity_and_quota_is_what_can_run(cores: int, quota: float | None, effective: float) -> None:
    assert host.effective_cpus(cores, quota) == effective


@pytest.mark.parametrize(("effective", "ranks"), [(0.5, 1), (1.0, 1), (1.9, 1), (2.0, 2), (2.5, 2), (64.0, 2)])
def test_cpu_ranks_have_a_core_each_and_are_at_most_two(effective: float, ranks: int) -> None:
    assert host.ranks_that_fit(effective) == ranks


def test_usable_cores_are_those_of_the_affinity_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 1, 3}, raising=False)
    assert host.usable_cores() == [1, 3, 5]


def test_without_affinity_masks_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert host.usable_cores() == [0, 1, 2]


# Evidence of a GPU


def test_a_machine_with_nothing_of_nvidia_has_no_evidence(tmp_path: Path) -> None:
    plant(tmp_path, {"dev/null": "", "dev/dri": "", "sys/bus/pci/slots": ""})
    assert host.gpu_evidence(tmp_path) == []


@pytest.mark.parametrize("kind", ["0x030000", "0x030200"])
def test_a_display_or_3d_controller_of_nvidia_is_evidence(tmp_path: Path, kind: str) -> None:
    pci(tmp_path, "0000:06:00.0", "0x10de", kind)
    assert host.gpu_evidence(tmp_path) == ["PCI device 0000:06:00.0"]


@pytest.mark.parametrize(
    ("vendor", "kind"),
    [("0x10de", "0x040300"), ("0x10de", "0x068000"), ("0x1002", "0x030000"), ("0x8086", "0x030200")],
    ids=["sound of NVIDIA", "NVSwitch", "display of AMD", "3D of Intel"],
)
def test_other_devices_are_no_evidence(tmp_path: Path, vendor: str, kind: str) -> None:
    pci(tmp_path, "0000:06:00.1", vendor, kind)
    assert host.gpu_evidence(tmp_path) == []


def test_a_pci_device_whose_files_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices/0000:07:00.0").mkdir(parents=True)
    pci(tmp_path, "0000:06:00.0", "0x10de", "0x030200")
    assert host.gpu_evidence(tmp_path) == ["PCI device 0000:06:00.0"]


def test_device_files_of_the_driver_are_evidence_one_by_one(tmp_path: Path) -> None:
    plant(tmp_path, {"dev/nvidia0": "", "dev/nvidiactl": "", "dev/nvidia-uvm": ""})
    assert host.gpu_evidence(tmp_path) == ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]


def test_the_folder_of_capabilities_alone_is_no_evidence(tmp_path: Path) -> None:
    plant(tmp_path, {"dev/nvidia-caps/nvidia-cap1": ""})
    assert host.gpu_evidence(tmp_path) == []


def test_the_paravirtual_gpu_of_wsl_is_evidence(tmp_path: Path) -> None:
    plant(tmp_path, {"dev/dxg": ""})
    assert host.gpu_evidence(tmp_path) == ["/dev/dxg (WSL)"]


# Variables

STEERING = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "NCCL_DEBUG",
    "NCCL_P2P_DISABLE",
    "NCCL_ANY_NEW_ONE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "SLURM_JOB_ID",
    "SLURM_PROCID",
]
OTHERS = [
    "AWS_SECRET",
    "AWS_SECRET_ACCESS_KEY",
    "MY_TOKEN",
    "HF_TOKEN",
    "MY_NCCL_TOKEN",
    "NVIDIA_API_KEY",
    "NVIDIA_VISIBLE_DEVICES_TOKEN",
    "RANK_TOKEN",
    "MASTER_PASSWORD",
    "TORCH_HUB_TOKEN",
    "SLURM_JWT",
    "PATH",
    "HOME",
    "nccl_debug",
]


@pytest.mark.parametrize("name", STEERING)
def test_a_variable_that_steers_cuda_nccl_gloo_or_openmp_is_recorded(name: str) -> None:
    assert host.steering_variables({name: "1", "HOME": "/root"}) == {name: "1"}


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_variable_may_be_a_secret_and_is_not_recorded(name: str) -> None:
    assert host.steering_variables({name: "hunter2"}) == {}


@given(st.dictionaries(st.text(max_size=24), st.text(max_size=8)))
@settings(deadline=None)
def test_only_names_with_a_known_beginning_are_ever_recorded(environment: dict[str, str]) -> None:
    beginnings = ("CUDA_", "NVIDIA_", "NCCL_", "TORCH_", "GLOO_", "TP_", "OMP_", "MKL_", "OPENBLAS_", "PYTORCH_")
    beginnings += ("RANK", "LOCAL_", "WORLD_", "MASTER_", "TORCHELASTIC_", "SLURM_")
    recorded = host.steering_variables(environment)
    assert all(name.startswith(beginnings) for name in recorded)
    assert recorded.items() <= environment.items()


# The rest


@pytest.mark.parametrize(
    ("file", "kind"), [(".dockerenv", "docker"), ("run/.containerenv", "podman"), ("etc/hostname", None)]
)
def test_a_container_is_known_by_the_file_that_its_runtime_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, kind: str | None
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert host.container_kind(plant(tmp_path, {file: ""})) == kind


def test_a_pod_without_such_a_file_is_known_by_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert host.container_kind(tmp_path) == "kubernetes"


def test_versions_are_read_without_an_import_and_none_is_not_installed() -> None:
    versions = host.package_versions(["pytest", "no-such-package-anywhere"])
    assert versions["pytest"] == pytest.__version__
    assert versions["no-such-package-anywhere"] is None


def test_the_owner_of_a_process_is_known_where_it_can_be_seen() -> None:
    me = psutil.Process()
    assert host.process_owner(os.getpid()) == (me.name(), me.username())


def test_a_process_that_is_not_here_has_no_name_and_no_owner() -> None:
    beyond_any_pid = 2**22 + 1  # the kernel's PID_MAX_LIMIT on 64 bits is 2^22
    assert host.process_owner(beyond_any_pid) == (None, None)


@pytest.mark.parametrize(
    ("group", "file", "text", "expected"),
    [
        ("0::/job", "sys/fs/cgroup/job/memory.events", "low 0\noom 3\noom_kill 2\n", 2),
        ("3:memory:/job", "sys/fs/cgroup/memory/job/memory.oom_control", "under_oom 0\noom_kill 5\n", 5),
        ("0::/job", "sys/fs/cgroup/memory.events", "oom_kill 7\n", 7),  # of the parent group
        ("0::/job", "sys/fs/cgroup/job/memory.events", "low 0\n", 0),
        ("3:cpu:/job", "sys/fs/cgroup/memory/job/memory.events", "oom_kill 5\n", 0),
    ],
)
def test_oom_kills_are_counted_where_the_kernel_counts_them(
    tmp_path: Path, group: str, file: str, text: str, expected: int
) -> None:
    for name, content in (("proc/self/cgroup", f"{group}\n"), (file, text)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert host.oom_kills(tmp_path) == expected

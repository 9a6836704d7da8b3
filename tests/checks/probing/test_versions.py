"""S1: a driver, a torch and GPUs that fit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.finding import State
from gpubalance.checks.probing.versions import covers
from gpubalance.record.node import DroppedEntry, Visibility
from tests.checks.probing.helpers import make_probe, only, states
from tests.checks.probing.nodes import silent, without_gpus

CPU_BUILD = {"version": "2.13.0+cpu", "cuda": None, "cuda_available": False, "device_count": 0, "arch_list": []}


def test_versions_that_fit_pass_and_are_all_told() -> None:
    (found,) = only("S1", make_probe())
    assert found.state is State.PASS
    assert found.required
    assert found.message == "driver 580.1 for CUDA 13.0, torch 2.11.0+cu130"
    assert {"driver 580.1", "CUDA of torch 13.0", "cuDNN 9.15", "NCCL 2.28.9"} <= set(found.evidence)


@pytest.mark.parametrize(
    ("torch", "driver", "state", "words"),
    [
        ({"version": "2.8.0+cu129", "cuda": "12.9"}, "13.0", "pass", "driver 580.1 for CUDA 13.0"),
        ({"version": "2.8.0+cu129", "cuda": "12.9"}, "12.4", "pass", "driver 580.1 for CUDA 12.4"),
        ({"cuda": "13.0"}, "12.9", "unknown", "torch 2.11.0+cu130 needs CUDA 13, this driver has 12.9"),
        ({"cuda": "13.0"}, None, "pass", "driver 580.1 for CUDA unnamed"),
        (CPU_BUILD, "13.0", "unknown", "2 GPUs found, but torch 2.13.0+cpu has no CUDA"),
        ({"cuda_available": False}, "13.0", "unknown", "2 GPUs found, but torch 2.11.0+cu130 can use none"),
        ({"arch_list": ["sm_80", "sm_86"]}, "13.0", "unknown", "torch 2.11.0+cu130 has no kernels for GPU 0, 1"),
        ({"arch_list": ["sm_80", "compute_80"]}, "13.0", "pass", "driver 580.1"),
        ({"arch_list": ["sm_100"]}, "13.0", "unknown", "torch 2.11.0+cu130 has no kernels for GPU 0, 1"),
        ({"error": "importing torch took more than 60 s"}, "13.0", "unknown", "torch cannot be asked: importing torch"),
        ({"error": "import torch failed: ModuleNotFoundError: No module named 'torch'"}, "13.0", "unknown",
         "torch is not installed beside gpubalance"),
    ],
)  # fmt: skip
def test_a_torch_that_cannot_run_here_leaves_no_verdict_and_says_why(
    torch: Mapping[str, Any], driver: str | None, state: str, words: str
) -> None:
    (found,) = only("S1", make_probe(torch=torch, node={"cuda_driver_version": driver}))
    assert found.state.value == state
    assert found.required
    assert words in found.message
    assert (found.next_step is not None) == (state == "unknown")


def test_a_newer_minor_version_of_cuda_is_told_to_be_fine() -> None:
    (found,) = only("S1", make_probe(torch={"cuda": "12.9"}, node={"cuda_driver_version": "12.4"}))
    assert found.evidence[-1].startswith("CUDA 12.9 on a driver of the same major version")


def test_only_the_gpu_without_a_kernel_is_named() -> None:
    capability = [{}, {"compute_capability_major": 12}]
    (found,) = only("S1", make_probe(readings=capability))
    assert found.message == "torch 2.11.0+cu130 has no kernels for GPU 1"
    assert found.observed == "compute capability 12.0"
    assert found.subject is not None
    assert found.subject.startswith("cuda:1 nvml:1 GPU-00000002")


def test_a_gpu_without_a_kernel_does_not_matter_while_it_is_hidden() -> None:
    shown = Visibility(asked="0", visible=[0])
    capability = [{}, {"compute_capability_major": 12}]
    assert states(only("S1", make_probe(readings=capability, node={"visibility": shown}))) == ["pass"]


def test_gpus_that_are_all_hidden_are_said_to_be() -> None:
    shown = Visibility(asked="", visible=[], dropped=[DroppedEntry(entry="", reason="set but empty")])
    (found,) = only("S1", make_probe(node={"visibility": shown}, torch={"cuda_available": False}))
    assert found.state is State.UNKNOWN
    assert found.message == "2 GPUs found, all hidden from torch"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("LIBRARY_NOT_FOUND", "its library libnvidia-ml is not here"),
        ("DRIVER_NOT_LOADED", "the kernel driver is not loaded"),
        ("NO_PERMISSION", "no permission"),
        ("UNKNOWN", "unknown error"),
        ("GPU_IS_LOST", "a GPU fell off the bus"),
        ("SHADOWED: the old package pynvml (/x/pynvml/__init__.py)", "the old package pynvml stands before"),
        ("IRQ_ISSUE", "IRQ_ISSUE"),
    ],
)
def test_an_nvml_that_does_not_work_leaves_no_verdict(error: str, words: str) -> None:
    look = make_probe(**without_gpus(error, gpu_evidence=["/dev/nvidia0"]), torch={"cuda_available": False})
    (found,) = only("S1", look)
    assert found.state is State.UNKNOWN
    assert found.message.startswith(f"NVML cannot be used: {words}")
    assert found.next_step is not None


def test_a_mismatch_of_library_and_module_names_both_versions_and_that_cuda_goes_on() -> None:
    node = without_gpus("LIB_RM_VERSION_MISMATCH", gpu_evidence=["/dev/nvidia0"], nvml_version="13.580.2")
    look = make_probe(**node, host={"driver_file_version": "580.1"}, torch={"cuda_available": True, "device_count": 2})
    (found,) = only("S1", look)
    assert found.evidence == ("kernel module 580.1", "NVML library 13.580.2", "torch sees 2 CUDA devices all the same")
    assert found.next_step == "reboot, or reload the nvidia kernel module"


def test_a_driver_that_never_answered_leaves_no_verdict() -> None:
    found = only("S1", silent())
    assert states(found) == ["unknown"]
    assert found[0].message == "the NVIDIA driver did not answer: nvmlInit did not return in 20 s"


def test_where_surely_no_gpu_is_the_versions_are_told_but_not_judged() -> None:
    (found,) = only("S1", make_probe(**without_gpus(), torch=CPU_BUILD))
    assert found.state is State.SKIP
    assert "torch 2.13.0+cpu" in found.evidence


@pytest.mark.parametrize(
    ("node", "settings"),
    [
        ({"gpu_evidence": ["PCI device 0000:06:00.0"]}, {}),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, {}),
        ({}, {"expect_gpus": 8}),
    ],
)
def test_a_cpu_build_is_no_excuse_where_a_gpu_should_be(node: dict[str, Any], settings: dict[str, int]) -> None:
    look = make_probe(**without_gpus("DRIVER_NOT_LOADED", **node), torch=CPU_BUILD, settings=settings)
    found = only("S1", look)
    assert states(found) == ["unknown", "unknown"]
    assert found[1].message == "there should be a GPU, but torch 2.13.0+cpu has no CUDA"


@pytest.mark.parametrize(
    ("packages", "file", "warned"),
    [
        ({"nvidia-ml-py": "13.580.1", "pynvml": None}, "/env/site-packages/pynvml.py", False),
        ({"nvidia-ml-py": "13.580.1", "pynvml": "11.5.0"}, "/env/site-packages/pynvml/__init__.py", True),
        ({"nvidia-ml-py": "13.580.1", "pynvml": "13.0.1"}, "/env/site-packages/pynvml.py", True),
        ({"nvidia-ml-py": "13.580.1"}, "/env/site-packages/pynvml/__init__.py", True),
        ({}, None, False),
    ],
)
def test_the_package_that_shadows_the_binding_is_named(
    packages: dict[str, str | None], file: str | None, warned: bool
) -> None:
    found = only("S1", make_probe(node={"packages": packages}, host={"binding_file": file}))
    assert states(found) == (["pass", "warn"] if warned else ["pass"])
    assert not warned or "pip uninstall pynvml" in (found[1].next_step or "")


@pytest.mark.parametrize(
    ("packages", "libraries", "told"),
    [
        ({"nvidia-nccl-cu12": "2.27", "nvidia-nccl-cu13": None}, ["/a/libnccl.so.2"], 0),
        ({"nvidia-nccl-cu12": "2.27", "nvidia-nccl-cu13": "2.28"}, [], 2),
        ({}, ["/a/libnccl.so.2", "/b/libnccl.so.2", "/c/libnccl.so.2"], 3),
    ],
)
def test_several_nccl_libraries_are_told_and_not_called_a_fault(
    packages: dict[str, str | None], libraries: list[str], told: int
) -> None:
    found = only("S1", make_probe(node={"packages": packages}, host={"nccl_libraries": libraries}))
    assert states(found) == (["pass", "info"] if told else ["pass"])
    assert not told or found[1].message == f"{told} NCCL libraries are installed here"


@pytest.mark.parametrize(
    ("architecture", "capability", "runs"),
    [
        ("sm_90", (9, 0), True),
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 3), False),
        ("sm_100f", (10, 3), True),
        ("sm_120", (12, 0), True),
        ("sm_120", (10, 0), False),
        ("compute_80", (12, 0), True),
        ("compute_90", (8, 9), False),
        ("compute_90a", (10, 0), False),
        ("gfx942", (9, 4), False),
    ],
)
def test_code_runs_on_what_it_was_built_for(architecture: str, capability: tuple[int, int], runs: bool) -> None:
    assert covers(architecture, capability) is runs


CAPABILITIES = st.tuples(st.integers(1, 15), st.integers(0, 9))


@given(built=CAPABILITIES, capability=CAPABILITIES)
def test_ptx_runs_wherever_machine_code_of_the_same_age_does(
    built: tuple[int, int], capability: tuple[int, int]
) -> None:
    number = f"{built[0]}{built[1]}"
    machine, ptx = covers(f"sm_{number}", capability), covers(f"compute_{number}", capability)
    assert ptx or not machine
    assert ptx == (capability >= built)

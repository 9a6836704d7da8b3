"""S4, S5: kernel modules, and the rights of a container."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checks.probing.helpers import make_probe, only, states, worst
from tests.checks.probing.nodes import silent, without_gpus

NO_CUDA = {"cuda_available": False}
FILES = {"/dev/nvidiactl": "ok", "/dev/nvidia-uvm": "ok", "/dev/nvidia0": "ok"}


@pytest.mark.parametrize(
    ("host", "container", "torch", "state", "words"),
    [
        ({"kernel_modules": ["nvidia", "nvidia_uvm"], "device_files": FILES}, None, NO_CUDA, "pass", "are loaded"),
        ({"kernel_modules": ["nvidia", "nvidia_uvm"], "device_files": FILES}, None, {}, "pass", "CUDA starts"),
        ({"kernel_modules": ["nvidia"], "device_files": FILES}, None, NO_CUDA, "fail", "module nvidia_uvm is not"),
        ({"kernel_modules": ["nvidia"], "device_files": FILES}, None, {}, "pass", "CUDA starts"),
        ({"kernel_modules": [], "device_files": {}}, None, NO_CUDA, "fail", "module nvidia is not loaded"),
        ({"kernel_modules": ["nouveau"]}, None, NO_CUDA, "fail", "nouveau is loaded"),
        ({"kernel_modules": ["nouveau", "nvidia", "nvidia_uvm"]}, None, {}, "fail", "nouveau is loaded"),
        ({"kernel_modules": ["nvidia", "nvidia_uvm"], "device_files": {**FILES, "/dev/nvidia-uvm": "EIO"}}, None,
         NO_CUDA, "fail", "/dev/nvidia-uvm cannot be opened (EIO)"),
        ({"kernel_modules": [], "device_files": FILES}, "docker", NO_CUDA, "pass", "/dev/nvidia-uvm opens"),
        ({"kernel_modules": [], "device_files": {"/dev/nvidia0": "ok"}}, "docker", NO_CUDA, "fail", "(ENOENT)"),
        ({"kernel_modules": [], "device_files": {**FILES, "/dev/nvidia-uvm": "EPERM"}}, "docker", NO_CUDA, "unknown",
         "this container may not"),
        ({"kernel_modules": None, "device_files": FILES}, None, NO_CUDA, "pass", "/dev/nvidia-uvm opens"),
        ({"kernel_modules": None, "device_files": {}, "missing": {"kernel_modules": "NO_PERMISSION"}}, None, NO_CUDA,
         "unknown", "kernel modules not seen: NO_PERMISSION"),
        ({"wsl": True, "kernel_modules": []}, None, NO_CUDA, "skip", "under WSL"),
    ],
)  # fmt: skip
def test_kernel_modules(
    host: dict[str, Any], container: str | None, torch: dict[str, Any], state: str, words: str
) -> None:
    found = worst(only("S4", make_probe(host=host, torch=torch, node={"container": container})))
    assert found.state.value == state
    assert words in found.message


def test_a_torch_that_only_asks_nvml_proves_no_cuda() -> None:
    look = make_probe(host={"kernel_modules": ["nvidia"]}, node={"environment": {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}})
    assert states(only("S4", look)) == ["fail"]


def test_no_module_is_due_where_no_gpu_is() -> None:
    assert states(only("S4", make_probe(**without_gpus(), host={"kernel_modules": []}))) == ["skip"]


DENIED = dict.fromkeys(FILES, "EPERM")


@pytest.mark.parametrize(
    ("files", "container", "error", "devices", "state", "words"),
    [
        (FILES, None, None, [{}, {}], "skip", "not in a container"),
        (FILES, "docker", None, [{}, {}], "pass", "this container may use its GPUs"),
        ({}, "docker", "LIBRARY_NOT_FOUND", [], "skip", "this container was given no GPU"),
        (DENIED, "docker", "UNKNOWN", [], "unknown", "this container may not open its GPUs any more"),
        (DENIED, None, "UNKNOWN", [], "unknown", "this container may not open its GPUs any more"),
        (FILES, "docker", "UNKNOWN", [], "unknown", "NVML gives an unknown error in this container"),
        (FILES, "docker", None, [{"missing": {"uuid": "UNKNOWN"}}, {}], "unknown", "NVML gives an unknown error"),
        ({**FILES, "/dev/nvidia0": "EACCES"}, "docker", None, [{}], "pass", "this container may use its GPUs"),
    ],
)
def test_a_container_that_lost_its_rights_measures_nothing_but_is_no_sick_gpu(
    files: dict[str, str], container: str | None, error: str | None, devices: list[Any], state: str, words: str
) -> None:
    node = {"container": container, "nvml_error": error, "gpu_evidence": ["/dev/nvidia0"]}
    (found,) = only("S5", make_probe(devices=devices, host={"device_files": files}, node=node))
    assert found.state.value == state
    assert words in found.message
    assert (found.next_step is not None and "recreate the container" in found.next_step) == (state == "unknown")


def test_the_files_that_may_not_be_opened_are_listed_even_when_the_driver_never_answered() -> None:
    found = only("S5", silent(host={"device_files": {"/dev/nvidiactl": "EPERM", "/dev/nvidia0": "ok"}}))
    assert states(found) == ["unknown"]
    assert found[0].evidence[0] == "/dev/nvidiactl: EPERM"
    assert not any("nvidia0" in line for line in found[0].evidence)


def test_rights_are_not_judged_when_nobody_knows_whether_it_is_a_container() -> None:
    assert states(only("S5", silent())) == ["unknown"]

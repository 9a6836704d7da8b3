"""S2: all GPUs are there."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.finding import State
from gpubalance.record.node import Visibility
from tests.checks.probing.helpers import make_probe, only, states, worst
from tests.checks.probing.nodes import silent, without_gpus


def pci(*bus_ids: str, driver: str | None = "nvidia") -> list[dict[str, Any]]:
    return [{"bus_id": bus_id, "device_id": "0x2335", "driver": driver} for bus_id in bus_ids]


@pytest.mark.parametrize(
    ("values", "state", "words"),
    [
        ({"count": 2}, "pass", "2 GPUs found"),
        ({"count": 2, "settings": {"expect_gpus": 2}}, "pass", "2 GPUs found"),
        ({"count": 2, "settings": {"expect_gpus": 1}}, "pass", "2 GPUs found"),
        ({"count": 2, "settings": {"expect_gpus": 3}}, "fail", "2 usable GPUs found, 3 expected"),
        ({"count": 2, "torch": {"device_count": 1}}, "fail", "CUDA sees 1 of 2 GPUs that NVML lists"),
        ({"count": 2, "torch": {"device_count": 0}}, "pass", "2 GPUs found"),  # S1 says why torch sees none
        ({"count": 2, "torch": {"device_count": None}}, "pass", "2 GPUs found"),
        ({"count": 2, "torch": {"device_count": 1}, "node": {"visibility": Visibility(asked="1", visible=[1])}},
         "pass", "2 GPUs found"),
        ({"devices": [{"mig_enabled": True}, {}], "torch": {"device_count": 1}}, "pass", "2 GPUs found"),
        ({"count": 2, "host": {"device_files": {"/dev/nvidiactl": "ok", "/dev/nvidia0": "ok"}}}, "fail",
         "1 of 2 GPUs have a file in /dev"),
        ({"count": 2, "host": {"device_files": {}}}, "pass", "2 GPUs found"),  # WSL has none
        ({"count": 1, "host": {"device_files": {"/dev/nvidia0": "ok", "/dev/nvidia1": "ok"}}}, "warn",
         "/dev has files for 2 GPUs, NVML lists 1"),
        ({"count": 2, "host": {"pci_gpus": pci("0000:06:00.0", "0000:07:00.0")}}, "pass", "2 GPUs found"),
        ({"count": 2, "host": {"pci_gpus": []}}, "pass", "2 GPUs found"),
        ({"count": 2, "host": {"pci_gpus": pci("0000:06:00.0", "0000:07:00.0", "0000:08:00.0")}}, "fail",
         "1 of 3 GPUs is on the bus but not in NVML"),
        ({"count": 1, "host": {"pci_gpus": pci("0000:06:00.0", "0000:07:00.0", "0000:08:00.0")}}, "fail",
         "2 of 3 GPUs are on the bus but not in NVML"),
        ({"count": 1, "host": {"pci_gpus": [*pci("0000:06:00.0"), *pci("0000:07:00.0", driver="vfio-pci")]}},
         "pass", "1 GPU found"),
    ],
)  # fmt: skip
def test_counts_are_held_against_each_other(values: dict[str, Any], state: str, words: str) -> None:
    found = worst(only("S2", make_probe(**values)))
    assert found.state.value == state
    assert found.required
    assert words in found.message
    assert (found.next_step is not None) == (state != "pass")


def test_a_gpu_on_the_bus_that_the_container_was_not_given_is_only_told() -> None:
    host = {"pci_gpus": pci("0000:06:00.0", "0000:07:00.0")}
    found = only("S2", make_probe(count=1, host=host, node={"container": "docker"}))
    assert states(found) == ["info", "pass"]
    assert found[0].evidence == ("0000:07:00.0, device 0x2335, driver nvidia",)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("GPU_IS_LOST", "GPU 1 is lost: it fell off the bus"),
        ("RESET_REQUIRED", "GPU 1 must be reset before anybody can use it"),
        ("GPU_NOT_FOUND", "GPU 1 is not found by its own driver"),
    ],
)
def test_a_lost_gpu_fails_by_name_even_though_nvml_counts_it(reason: str, words: str) -> None:
    look = make_probe(devices=[{}, {"missing": {"uuid": reason}}], settings={"expect_gpus": 2})
    found = only("S2", look)
    assert states(found) == ["fail", "fail"]
    assert [f.message for f in found] == [words, "1 usable GPU found, 2 expected"]


def test_a_gpu_that_is_lost_while_it_is_asked_fails_as_well() -> None:
    look = make_probe(gpus=[{}, {"power_w": ("GPU_IS_LOST",)}])
    assert worst(only("S2", look)).message == "GPU 1 is lost: it fell off the bus"


@pytest.mark.parametrize("reason", ["NOT_SUPPORTED", "NO_PERMISSION"])
def test_a_gpu_that_refuses_something_is_not_lost(reason: str) -> None:
    assert states(only("S2", make_probe(gpus=[{}, {"power_w": (reason,)}]))) == ["pass"]


@pytest.mark.parametrize(
    ("node", "settings", "state", "words"),
    [
        ({}, {}, "unknown", "no GPU on this machine"),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "-1", "NVIDIA_VISIBLE_DEVICES": "void"}}, {}, "unknown",
         "no GPU on this machine"),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0,1"}}, {}, "unknown",
         "no GPU on this machine, though CUDA_VISIBLE_DEVICES=0,1 asks for one"),
        ({}, {"expect_gpus": 8}, "fail", "0 usable GPUs found, 8 expected"),
        ({"gpu_evidence": ["/dev/nvidia0"]}, {}, "unknown", "there is a GPU here, but NVML cannot be used"),
        ({"gpu_evidence": ["/dev/nvidia0"]}, {"expect_gpus": 8}, "unknown",
         "there is a GPU here, but NVML cannot be used"),
        ({"gpu_evidence": ["/dev/nvidia0"], "nvml_error": None}, {}, "unknown",
         "there is a GPU here, but NVML lists none"),
        ({"gpu_evidence": ["/dev/nvidia0"], "nvml_error": None}, {"expect_gpus": 8}, "fail",
         "0 usable GPUs found, 8 expected"),
    ],
)  # fmt: skip
def test_no_gpu_is_never_a_pass(node: dict[str, Any], settings: dict[str, int], state: str, words: str) -> None:
    (found,) = only("S2", make_probe(**without_gpus(**node), settings=settings))
    assert found.state.value == state
    assert found.required
    assert found.message == words


def test_gpus_that_the_driver_left_out_fail_on_bare_metal() -> None:
    look = make_probe(**without_gpus(None, gpu_evidence=["x"]), host={"pci_gpus": pci("0000:06:00.0")})
    assert [f.message for f in only("S2", look)] == ["1 of 1 GPU is on the bus but not in NVML"]


def test_a_driver_that_never_answered_counts_nothing() -> None:
    found = only("S2", silent(settings={"expect_gpus": 8}))
    assert [(f.state, f.message) for f in found] == [(State.UNKNOWN, "GPUs not counted: the driver did not answer")]

"""How devices and ranks are called."""

from __future__ import annotations

from gpubalance.checks.identity import device_label, labels_of, name_of, rank_label
from gpubalance.record.node import Device
from gpubalance.testing.runs import make_gpu, make_run


def test_a_gpu_is_called_by_every_name_and_none_is_shortened() -> None:
    assert device_label(make_gpu(3)) == "cuda:3 nvml:3 GPU-00000004-aaaa-bbbb-cccc-000000000003 0000:09:00.0"


def test_names_that_are_not_known_are_left_out() -> None:
    assert device_label(Device(kind="cuda", name="GPU", cuda_ordinal=0, nvml_index=2)) == "cuda:0 nvml:2"


def test_a_cpu_slot_is_called_by_its_cores() -> None:
    assert device_label(Device(kind="cpu", name="CPU", cpu_cores=[4, 5])) == "CPU core 4,5"


def test_a_rank_is_called_with_the_device_that_it_works_on() -> None:
    assert rank_label(make_run(ranks=2), 0, 1).startswith("rank 0 on cuda:1 nvml:1 GPU-00000002-")


def test_in_a_sentence_a_device_has_its_short_name() -> None:
    run = make_run(ranks=2)
    unknown = run.plan.devices[1].model_copy(update={"nvml_index": None})
    slot = Device(kind="cpu", name="CPU", cpu_cores=[4])
    mixed = run.model_copy(update={"plan": run.plan.model_copy(update={"devices": [make_gpu(5), unknown, slot]})})
    assert [name_of(mixed, device) for device in range(3)] == ["GPU 5", "cuda:1", "CPU core 4"]
    assert labels_of(mixed, 0, 2) == f"{device_label(make_gpu(5))}; CPU core 4"

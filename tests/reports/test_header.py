"""The first lines of a report, and what is said before a run starts."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.record.node import Device
from gpubalance.record.run import Plan, Run
from gpubalance.reports.header import devices_text, header_lines, nccl_text, plan_lines, work_text
from gpubalance.testing.runs import make_attempt, make_gpu, make_node, make_run, steady


def healthy(**values: Any) -> Run:
    return make_run([make_attempt(steady([100.0, 100.0]))], **values)


def plan_of(*devices: Device, **values: Any) -> Plan:
    plan = make_run([], ranks=max(1, len(devices))).plan
    return plan.model_copy(update={**({"devices": list(devices)} if devices else {}), **values})


def test_a_gpu_run_names_devices_versions_and_work() -> None:
    assert header_lines(healthy()) == [
        "gpubalance 0.1.0   2 x NVIDIA H200 (18 NVLinks)",
        "torch 2.11.0  CUDA 13.0  NCCL 2.28.9",
        "2 ranks x batch 4096 = 8192, mlp of 12 x 4096 in bfloat16, nccl",
    ]


def test_a_cpu_run_shows_the_method_and_says_so_in_its_first_line() -> None:
    lines = header_lines(make_run([make_attempt(steady([100.0, 100.0]))], on_cpu=True))
    assert lines[0] == "gpubalance 0.1.0   2 x CPU core over gloo: this shows the method, not GPUs"
    assert lines[1].endswith("  CPU")
    assert lines[2].endswith(", gloo")


def test_a_run_without_any_rank_has_no_versions_to_show() -> None:
    assert header_lines(make_run([])) == [
        "gpubalance 0.1.0   2 x NVIDIA H200 (18 NVLinks)",
        "2 ranks x batch 4096 = 8192, mlp of 12 x 4096 in bfloat16, nccl",
    ]


def test_a_version_that_a_rank_could_not_tell_is_left_out() -> None:
    run = healthy()
    unknown = run.ranks[0].model_copy(update={"versions": {"torch": "2.11.0", "cuda": "13.0", "nccl": None}})
    assert header_lines(run.model_copy(update={"ranks": [unknown]}))[1] == "torch 2.11.0  CUDA 13.0"


def test_notes_of_the_plan_are_shown_one_a_line() -> None:
    run = healthy()
    plan = run.plan.model_copy(update={"notes": ["RANK ignored", "2 of 4 GPUs take part"]})
    assert header_lines(run.model_copy(update={"plan": plan}))[-2:] == [
        "note: RANK ignored",
        "note: 2 of 4 GPUs take part",
    ]


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ([make_gpu(0)], "1 x NVIDIA H200 (18 NVLinks)"),
        ([make_gpu(0, nvlink_count=0), make_gpu(1, nvlink_count=0)], "2 x NVIDIA H200"),
        ([make_gpu(0, nvlink_count=None), make_gpu(1, nvlink_count=None)], "2 x NVIDIA H200"),
        ([make_gpu(0, nvlink_count=18), make_gpu(1, nvlink_count=12)], "2 x NVIDIA H200"),
        (
            [make_gpu(0), make_gpu(1).model_copy(update={"name": "NVIDIA H100"}), make_gpu(2)],
            "2 x NVIDIA H200, 1 x NVIDIA H100 (18 NVLinks)",
        ),
    ],
    ids=["one", "no links", "links unknown", "links differ", "mixed models"],
)
def test_devices_are_counted_by_name(devices: list[Device], text: str) -> None:
    assert devices_text(plan_of(*devices)) == text


def test_one_rank_is_not_called_ranks() -> None:
    assert work_text(plan_of(make_gpu(0), global_batch=4096)).startswith("1 rank x batch 4096 = 4096, ")


def test_a_launcher_that_started_the_ranks_is_named() -> None:
    assert work_text(plan_of(launcher="torchrun")).endswith(", nccl, started by torchrun")
    assert "started by" not in work_text(plan_of(launcher="own"))


def test_variables_of_nccl_are_shown_because_each_changes_what_is_measured() -> None:
    environment = {
        "CUDA_HOME": "/usr/local/cuda",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_VERSION": "2.28.3-1",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
    }
    node = make_node([make_gpu(0)], environment=environment)
    assert nccl_text(node) == "set: NCCL_P2P_DISABLE=1, TORCH_NCCL_BLOCKING_WAIT=1"
    assert nccl_text(make_node([make_gpu(0)], environment={"NCCL_VERSION": "2.28.3-1"})) is None


@pytest.mark.parametrize(
    ("packages", "backend", "versions"),
    [
        ({"torch": "2.11.0", "nvidia-nccl-cu13": "2.28.9"}, "nccl", "torch 2.11.0  driver 580.1  NCCL 2.28.9"),
        ({"torch": "2.4.0", "nvidia-nccl-cu12": "2.20.5"}, "nccl", "torch 2.4.0  driver 580.1  NCCL 2.20.5"),
        ({"torch": "2.11.0", "nvidia-nccl-cu13": "2.28.9"}, "gloo", "torch 2.11.0  driver 580.1"),
        ({"torch": None}, "nccl", "torch not found  driver 580.1"),
    ],
)
def test_before_the_run_the_installed_versions_are_shown(
    packages: dict[str, str | None], backend: str, versions: str
) -> None:
    plan = plan_of(backend=backend, notes=["a note"])
    lines = plan_lines(plan, make_node([make_gpu(0)], packages=packages))
    assert lines[0] == f"{devices_text(plan)}   {versions}"
    assert lines[1:] == [work_text(plan), "note: a note"]

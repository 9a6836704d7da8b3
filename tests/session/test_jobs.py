"""The jobs of a bench run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpubalance.faults import Fault
from gpubalance.record.collectives import NAMES, CollectiveOptions
from gpubalance.record.job import Job, Slot
from gpubalance.record.node import Device
from gpubalance.record.run import Plan
from gpubalance.session.jobs import collective_options, first_job, node_job, rotated_job
from gpubalance.settings import BenchSettings
from gpubalance.testing.link_runs import joined_gpus
from gpubalance.testing.runs import make_gpu, make_run

FOLDER = Path("/scratch")


def plan_of(*devices: Device, **values: Any) -> Plan:
    plan = make_run([], ranks=len(devices)).plan
    workloads = ["solo", "ddp", "data_parallel", "collectives"]
    return plan.model_copy(update={"devices": list(devices), "workloads": workloads, **values})


def job_of(*devices: Device, settings: BenchSettings | None = None, **values: Any) -> Job:
    return first_job(settings or BenchSettings(), plan_of(*devices, **values), FOLDER)


def test_the_first_job_is_everything_that_ranks_can_run_on_the_devices_of_the_plan() -> None:
    settings = BenchSettings(budget_s=60.0, seed=7, inject=(Fault("sleep", rank=1, ms=5.0),))
    job = job_of(make_gpu(0), make_gpu(1), settings=settings)
    assert (job.attempt, job.crew, job.device, job.backend) == (0, "ranks", "cuda", "nccl")
    assert job.phases == ("solo", "ddp", "collectives")
    assert (job.global_batch, job.per_rank_batch, job.budget_s, job.seed) == (8192, 4096, 60.0, 7)
    assert job.model == plan_of(make_gpu(0)).model.model_dump()
    assert [(fault["kind"], fault["rank"], fault["ms"]) for fault in job.faults] == [("sleep", 1, 5.0)]
    assert job.log_path(0).parent == FOLDER


def test_over_gloo_ranks_work_on_the_cpu() -> None:
    slots = [Device(kind="cpu", name="CPU", cpu_cores=[core]) for core in (2, 5)]
    job = job_of(*slots, backend="gloo")
    assert (job.device, job.backend) == ("cpu", "gloo")
    assert [slot.cores for slot in job.slots] == [(2,), (5,)]


def test_devices_that_are_named_by_uuid_are_counted_in_the_order_of_the_plan() -> None:
    chosen = [make_gpu(3), make_gpu(1)]
    assert job_of(*chosen).slots == (
        Slot(0, 0, chosen[0].uuid, (), "0000:09:00.0"),
        Slot(1, 1, chosen[1].uuid, (), "0000:07:00.0"),
    )


def test_where_one_uuid_is_unknown_cudas_own_ordinals_count() -> None:
    nameless = make_gpu(3).model_copy(update={"uuid": None, "cuda_ordinal": 3})
    assert job_of(nameless, make_gpu(1)).slots == (
        Slot(0, 3, None, (), "0000:09:00.0"),
        Slot(1, 1, make_gpu(1).uuid, (), "0000:07:00.0"),
    )


@pytest.mark.parametrize("count", [2, 3, 8])
def test_the_confirming_job_has_every_rank_on_the_next_device(count: int) -> None:
    job = job_of(*(make_gpu(index) for index in range(count)))
    again = rotated_job(job)
    assert [slot.device for slot in again.slots] == [(rank + 1) % count for rank in range(count)]
    assert [slot.uuid for slot in again.slots] == [make_gpu((rank + 1) % count).uuid for rank in range(count)]
    assert (again.attempt, again.phases, again.crew) == (1, ("ddp",), "ranks")


def test_nothing_but_places_attempt_and_phases_changes_the_second_time() -> None:
    job = job_of(make_gpu(0), make_gpu(1))
    again = rotated_job(job)
    different = {name for name in job.__dataclass_fields__ if getattr(job, name) != getattr(again, name)}
    assert different == {"attempt", "slots", "phases"}


def test_a_single_rank_stays_where_it_is() -> None:
    job = job_of(make_gpu(0))
    assert rotated_job(job).slots == job.slots


def test_the_last_job_is_one_process_that_sees_all_devices() -> None:
    job = job_of(make_gpu(0), make_gpu(1))
    last = node_job(job, plan_of(make_gpu(0), make_gpu(1)))
    assert (last.crew, last.phases, last.slots) == ("node", ("data_parallel",), job.slots)


def test_links_come_before_everything_else_that_copies_between_devices() -> None:
    both = plan_of(make_gpu(0), make_gpu(1), workloads=["data_parallel", "links"])
    assert node_job(job_of(make_gpu(0)), both).phases == ("links", "data_parallel")
    assert node_job(job_of(make_gpu(0)), plan_of(make_gpu(0), workloads=["ddp"])).phases == ()


def test_jobs_write_to_different_files() -> None:
    job = job_of(make_gpu(0), make_gpu(1))
    assert len({each.log_path(0) for each in (job, rotated_job(job), node_job(job, plan_of(make_gpu(0))))}) == 3


def test_a_collective_may_take_longer_than_the_parent_waits_so_that_the_parent_comes_first() -> None:
    settings = BenchSettings(stall_s=45.0)
    assert job_of(make_gpu(0), settings=settings).group_timeout_s > settings.stall_s


GIB = 2**30


def options(backend: str = "nccl", capability: int = 9, **settings: Any) -> CollectiveOptions:
    plan = plan_of(*[make_gpu(index, compute_capability_major=capability) for index in range(2)], backend=backend)
    return collective_options(BenchSettings(**settings), plan)


def test_beside_training_collectives_are_few_and_quick() -> None:
    few = CollectiveOptions(sizes=(8192, 64 * 2**20, GIB), names=("all_reduce", "all_gather", "reduce_scatter"))
    assert options() == options(workloads=("ddp", "collectives")) == few
    assert options("gloo").sizes == (8192, 2**20, 16 * 2**20)


@pytest.mark.parametrize(
    ("count", "capability", "links", "last"),
    [(2, 9, 18, GIB), (8, 9, 18, 4 * GIB), (2, 10, 18, 8 * GIB), (8, 10, 18, 8 * GIB), (8, 8, 0, GIB)],
)
def test_beside_training_the_last_size_is_one_that_is_judged_where_nvlink_makes_it_quick(
    count: int, capability: int, links: int, last: int
) -> None:
    """4 GiB for all_gather on more than two GPUs; over PCIe an operation of 4 GiB may take seconds."""
    devices = joined_gpus(count, nvlinks_active=links, compute_capability_major=capability)
    found = collective_options(BenchSettings(), plan_of(*devices))
    assert found.sizes == (8192, 64 * 2**20, last)


@pytest.mark.parametrize(("capability", "last"), [(8, 4 * GIB), (9, 4 * GIB), (10, 8 * GIB)])
def test_alone_they_are_all_up_to_the_size_that_is_judged(capability: int, last: int) -> None:
    found = options(capability=capability, workloads=("collectives",))
    assert (found.names, found.every_placement, found.sizes[0], found.sizes[-1]) == (NAMES, True, 8, last)
    assert options("gloo", workloads=("collectives",)).sizes[-1] == 16 * 2**20


def test_what_was_asked_for_counts() -> None:
    found = options(sizes=(8,), collectives=("reduce",), dtype="float16", nccl_tests_compat=True, jitter=True)
    assert found == CollectiveOptions((8,), ("reduce",), "float16", every_placement=True, compat=True, jitter=True)


def test_compat_has_nccl_schedule_as_nccl_tests_asks_unless_the_user_said_otherwise() -> None:
    name = "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE"
    asked = BenchSettings(nccl_tests_compat=True)
    assert first_job(asked, plan_of(make_gpu(0)), FOLDER, {}).environment == {name: "1"}
    assert first_job(asked, plan_of(make_gpu(0)), FOLDER, {name: "0"}).environment == {}
    assert first_job(BenchSettings(), plan_of(make_gpu(0)), FOLDER, {}).environment == {}

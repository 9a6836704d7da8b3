"""What runs where, and every refusal: one sentence, the right exit code, nothing started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpubalance.errors import BusyError, CannotMeasureError, GpubalanceError, UsageError
from gpubalance.faults import GPU_FAULTS, Fault
from gpubalance.launch.launcher_env import Share
from gpubalance.launch.plan import choose_kind, make_plan
from gpubalance.node.visibility import read_visibility
from gpubalance.record.node import Device, DroppedEntry, Node, Process, Visibility
from gpubalance.record.run import Plan, Skipped
from gpubalance.settings import BenchSettings
from gpubalance.testing.runs import make_gpu, make_node

OWN = Share("own")
GIB = 2**30


def gpus(count: int, **readings: Any) -> list[Device]:
    return [make_gpu(index, **readings) for index in range(count)]


def node_of(count: int, **values: Any) -> Node:
    return make_node(gpus(count), **values)


def with_first(node: Node, **fields: Any) -> Node:
    """The node with other fields of its first device."""
    first, *rest = node.devices
    return node.model_copy(update={"devices": [first.model_copy(update=fields), *rest]})


def reading(node: Node, **readings: Any) -> Node:
    """The node with other readings of its first device."""
    return with_first(node, readings={**node.devices[0].readings, **readings})


def seen_through(value: str, count: int) -> Node:
    """A node whose CUDA_VISIBLE_DEVICES is this."""
    devices = gpus(count)
    visible = read_visibility(value, [device.uuid for device in devices])
    ordinals = {index: ordinal for ordinal, index in enumerate(visible.indices)}
    return make_node(
        [device.model_copy(update={"cuda_ordinal": ordinals.get(i)}) for i, device in enumerate(devices)],
        environment={"CUDA_VISIBLE_DEVICES": value},
        visibility=Visibility(
            asked=value,
            visible=list(visible.indices),
            dropped=[DroppedEntry(entry=d.entry, reason=d.reason) for d in visible.dropped],
        ),
    )


def plan(node: Node, share: Share = OWN, **asked: Any) -> Plan:
    return make_plan(node, BenchSettings(**asked), share)[0]


def skipped(node: Node, **asked: Any) -> dict[str, str]:
    found: Sequence[Skipped] = make_plan(node, BenchSettings(**asked), OWN)[1]
    return {skip.what: skip.reason for skip in found}


def refusal(node: Node, kind: type[GpubalanceError], share: Share = OWN, **asked: Any) -> GpubalanceError:
    """The refusal, after a look at what holds for every one: one sentence, and what to do about it."""
    with pytest.raises(GpubalanceError) as caught:
        plan(node, share, **asked)
    error = caught.value
    assert type(error) is kind
    assert error.exit_code == (2 if kind is UsageError else 3)
    assert "\n" not in error.message
    assert not error.message.endswith(".")
    return error


CPU_NODE = make_node(cpu_cores=[0, 1, 2, 3], cpu_effective=4.0)


# Without any refusal


def test_all_visible_gpus_take_part_each_with_its_rank_in_cudas_order() -> None:
    made = plan(node_of(8))
    assert [device.cuda_ordinal for device in made.devices] == list(range(8))
    assert (made.backend, made.launcher, made.notes) == ("nccl", "own", [])
    assert made.workloads == ["solo", "ddp", "data_parallel", "collectives", "links"]
    assert (made.global_batch, made.per_rank_batch) == (8 * 4096, 4096)


def test_ranks_follow_the_order_that_cuda_gives_and_not_that_of_nvml() -> None:
    made = plan(seen_through("3,1", 5))
    assert [(device.cuda_ordinal, device.nvml_index) for device in made.devices] == [(0, 3), (1, 1)]
    assert made.notes == ["2 of 5 GPUs take part (restricted by CUDA_VISIBLE_DEVICES)"]


def test_ranks_for_every_gpu_that_cuda_shows_are_restricted_by_the_variable() -> None:
    assert plan(seen_through("3,1", 4), nproc=2).notes == ["2 of 4 GPUs take part (restricted by CUDA_VISIBLE_DEVICES)"]


def test_an_entry_that_was_dropped_is_noted_with_its_reason() -> None:
    made = plan(seen_through("0,1,9", 4))
    assert made.notes[1] == "CUDA_VISIBLE_DEVICES: '9' dropped: there are only 4 GPUs"


def test_devices_and_their_order_can_be_chosen() -> None:
    made = plan(node_of(4), devices=("2", "GPU-00000001"))
    assert [device.nvml_index for device in made.devices] == [2, 0]
    assert made.notes == ["2 of 4 GPUs take part (restricted by --devices)"]


def test_fewer_ranks_take_the_first_gpus_and_say_so() -> None:
    made = plan(node_of(8), nproc=2)
    assert [device.nvml_index for device in made.devices] == [0, 1]
    assert made.notes == ["2 of 8 GPUs take part (restricted by --nproc)"]


def test_the_world_of_a_launcher_is_the_number_of_ranks_and_its_note_is_kept() -> None:
    made = plan(node_of(8), Share("torchrun", 0, 4, "key", "a note"))
    assert len(made.devices) == 4
    assert made.launcher == "torchrun"
    assert made.notes == ["a note", "4 of 8 GPUs take part (restricted by the launcher)"]


def test_on_the_cpu_each_rank_owns_a_core_and_two_are_enough() -> None:
    made = plan(CPU_NODE)
    assert made.backend == "gloo"
    assert [device.cpu_cores for device in made.devices] == [[0], [1]]
    assert {device.kind for device in made.devices} == {"cpu"}


@pytest.mark.parametrize(("effective", "ranks"), [(0.5, 1), (1.5, 1), (4.0, 2)])
def test_on_the_cpu_a_quota_of_the_control_group_limits_the_ranks(effective: float, ranks: int) -> None:
    assert len(plan(make_node(cpu_effective=effective)).devices) == ranks


def test_on_the_cpu_more_ranks_can_be_asked_up_to_the_cores() -> None:
    assert len(plan(CPU_NODE, nproc=4).devices) == 4


@pytest.mark.parametrize(("model", "name"), [("AMD EPYC", "AMD EPYC"), (None, "CPU")])
def test_on_the_cpu_a_slot_has_the_name_of_the_processor(model: str | None, name: str) -> None:
    assert {device.name for device in plan(make_node(cpu_model=model)).devices} == {name}


# More than there is


@pytest.mark.parametrize("asked", [3, 9])
def test_more_ranks_than_visible_gpus_are_refused(asked: int) -> None:
    error = refusal(node_of(2), UsageError, nproc=asked)
    assert error.message == f"{asked} ranks asked, 2 of 2 GPUs visible; two ranks cannot share a GPU"
    assert error.next_step == "give --nproc 2, or --device cpu"


def test_more_ranks_than_cuda_shows_are_refused_although_the_node_has_more() -> None:
    error = refusal(seen_through("0", 8), UsageError, nproc=2)
    assert error.message.startswith("2 ranks asked, 1 of 8 GPUs visible")


def test_more_ranks_of_a_launcher_than_gpus_are_refused() -> None:
    error = refusal(node_of(2), UsageError, Share("torchrun", 0, 4, "key"))
    assert error.message.startswith("4 ranks of the launcher, 2 of 2 GPUs visible")
    assert "srun --gpu-bind=none" in str(error.next_step)


def test_more_ranks_than_cores_are_refused() -> None:
    error = refusal(CPU_NODE, UsageError, nproc=5)
    assert error.message == "5 ranks asked, 4 CPU cores usable; ranks that share a core slow each other"
    assert error.next_step == "give --nproc 4 or less"


def test_fewer_gpus_than_expected_cannot_be_measured() -> None:
    assert len(plan(node_of(7), expect_gpus=8).devices) == 7  # what is there is measured; the verdict is a check's


def test_as_many_gpus_as_expected_or_more_are_measured() -> None:
    assert len(plan(node_of(8), expect_gpus=8).devices) == 8
    assert len(plan(node_of(8), expect_gpus=4).devices) == 8


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("-1", "('-1': negative, which hides the rest of the list)"),
        ("", "('': set but empty, which hides every device)"),
        ("NoDevFiles", "('NoDevFiles': not an index"),
        ("7", "('7': there are only 2 GPUs)"),
        ("0,0", "('0': '0' repeats a device, which empties the list)"),
    ],
)
def test_gpus_that_are_all_hidden_cannot_be_measured_and_the_entry_is_named(value: str, why: str) -> None:
    error = refusal(seen_through(value, 2), CannotMeasureError)
    assert error.message.startswith("CUDA_VISIBLE_DEVICES hides all 2 GPUs (")
    assert why in error.message
    assert "--device cpu" in str(error.next_step)


@pytest.mark.parametrize("entry", ["5", "GPU-zzz", "GPU-0000"])
def test_a_choice_of_devices_that_names_none_is_wrong_use_and_is_named(entry: str) -> None:
    error = refusal(node_of(2), UsageError, devices=(entry,))
    assert entry in error.message
    assert "visible are: 0 = GPU-00000001" in str(error.next_step)


def test_a_gpu_that_cuda_does_not_show_cannot_be_chosen() -> None:
    error = refusal(seen_through("0", 2), UsageError, devices=("GPU-00000002",))
    assert "GPU-00000002" in error.message


def test_gpus_cannot_be_chosen_for_a_run_on_the_cpu() -> None:
    error = refusal(CPU_NODE, UsageError, device="cpu", devices=("0",))
    assert error.message == "--devices names GPUs, and this run is on the CPU"


# Batches


@pytest.mark.parametrize(
    ("batch", "ranks", "left", "below", "above"),
    [(10, 8, 2, 8, 16), (17, 8, 1, 16, 24), (4097, 2, 1, 4096, 4098), (5, 3, 2, 3, 6)],
)
def test_a_batch_that_does_not_divide_is_refused_and_both_neighbours_are_offered(
    batch: int, ranks: int, left: int, below: int, above: int
) -> None:
    error = refusal(node_of(ranks), UsageError, batch=batch)
    assert error.message == (
        f"global batch {batch} does not divide over {ranks} ranks: {left} samples would be left over"
    )
    assert error.next_step == f"give --batch {below} or {above}, or --workload data_parallel, which splits unevenly"


def test_who_chose_the_workloads_is_not_told_to_choose_others() -> None:
    error = refusal(node_of(8), UsageError, batch=10, workloads=("ddp",))
    assert error.next_step == "give --batch 8 or 16"


@pytest.mark.parametrize("workloads", [None, ("data_parallel",), ("ddp",)])
def test_a_batch_smaller_than_the_ranks_is_refused(workloads: tuple[str, ...] | None) -> None:
    error = refusal(node_of(8), UsageError, batch=7, workloads=workloads)
    assert error.message == "global batch 7 is smaller than the 8 ranks"
    assert error.next_step == "give --batch 8 or more"


@pytest.mark.parametrize(
    ("batch", "shard", "fed", "below", "above"),
    [(9, 2, 5, 8, 16), (10, 2, 5, 8, 16), (17, 3, 6, 16, 24), (11, 2, 6, 8, 16)],
)
def test_gpus_that_data_parallel_does_not_feed_are_counted_and_the_neighbours_that_feed_all_are_offered(
    batch: int, shard: int, fed: int, below: int, above: int
) -> None:
    made = plan(node_of(8), batch=batch, workloads=("data_parallel",))
    assert len(made.notes) == 1
    assert made.notes[0] == (
        f"DataParallel splits {batch} samples into shards of {shard}, which feed {fed} of 8 GPUs; "
        f"the others are not fed ({below} or {above} samples would feed all)"
    )


@pytest.mark.parametrize("batch", [8, 15, 16, 23, 24])
def test_a_batch_that_feeds_all_gpus_needs_no_note(batch: int) -> None:
    assert plan(node_of(8), batch=batch, workloads=("data_parallel",)).notes == []


@given(batch=st.integers(1, 300), ranks=st.integers(2, 16))
@settings(deadline=None)
def test_the_gpus_said_to_be_fed_are_as_many_as_the_chunks_of_the_batch(batch: int, ranks: int) -> None:
    """Counted the way torch cuts: pieces of the size of the first one until nothing is left."""
    left, pieces, first = batch, 0, (batch + ranks - 1) // ranks
    while left > 0:
        left -= min(first, left)
        pieces += 1
    assume(batch >= ranks)
    notes = plan(node_of(ranks), batch=batch, workloads=("data_parallel",)).notes
    told = [f"feed {pieces} of {ranks} GPUs" in note for note in notes]
    assert told == ([] if pieces == ranks else [True])


def test_a_batch_is_shared_out_evenly() -> None:
    made = plan(node_of(4), batch=1024)
    assert (made.global_batch, made.per_rank_batch) == (1024, 256)


# What stands in the way


def test_a_gpu_in_mig_mode_cannot_be_measured() -> None:
    error = refusal(with_first(node_of(2), mig_enabled=True), CannotMeasureError)
    assert "MIG" in error.message
    assert "cuda:0 (nvml:0, GPU-00000001-aaaa-bbbb-cccc-000000000000)" in error.message


def test_a_gpu_in_mig_mode_that_takes_no_part_is_in_nobodys_way() -> None:
    node = with_first(node_of(3), mig_enabled=True)
    assert [device.nvml_index for device in plan(node, devices=("1", "2")).devices] == [1, 2]


@pytest.mark.parametrize(("mode", "name"), [(2, "Prohibited"), (3, "Exclusive Process")])
def test_a_compute_mode_that_stops_ranks_cannot_be_measured(mode: int, name: str) -> None:
    error = refusal(reading(node_of(2), compute_mode=mode), CannotMeasureError)
    assert name in error.message
    assert error.next_step == "nvidia-smi -c 0 lifts it"


@pytest.mark.parametrize("mode", [0, 1, None])
def test_any_other_compute_mode_is_no_obstacle(mode: int | None) -> None:
    assert len(plan(reading(node_of(2), compute_mode=mode)).devices) == 2


@pytest.mark.parametrize("field", ["uuid", "memory_total_bytes"])
def test_a_lost_gpu_cannot_be_measured(field: str) -> None:
    node = with_first(node_of(2), missing={field: "GPU_IS_LOST"}, **{field: None})
    assert "is lost" in refusal(node, CannotMeasureError).message


def test_a_lost_gpu_without_any_name_is_still_named_by_its_indices() -> None:
    lost = {"uuid": "GPU_IS_LOST", "pci_bus_id": "GPU_IS_LOST"}
    error = refusal(with_first(node_of(2), uuid=None, pci_bus_id=None, missing=lost), CannotMeasureError)
    assert "cuda:0 (nvml:0" in error.message
    assert "None" not in error.message


@pytest.mark.parametrize("obstacle", [{"mig_enabled": True}, {"missing": {"uuid": "GPU_IS_LOST"}}])
def test_force_does_not_help_where_ranks_could_not_run(obstacle: dict[str, Any]) -> None:
    refusal(with_first(node_of(2), **obstacle), CannotMeasureError, force=True)


# Somebody else is here

BUSY: dict[str, tuple[Callable[[], Node], str]] = {
    "by a process with an owner": (
        lambda: node_of(
            2, processes=[Process(nvml_index=1, pid=4711, memory_used_bytes=3 * GIB // 2, owner="ada", name="python")]
        ),
        "GPU cuda:1 (nvml:1, GPU-00000002-aaaa-bbbb-cccc-000000000001) is in use by pid 4711 (ada), 1.5 GiB",
    ),
    "by a process that cannot be seen": (
        lambda: node_of(2, processes=[Process(nvml_index=0, pid=4711, memory_used_bytes=None)]),
        "is in use by pid 4711",
    ),
    "by memory of nobody": (
        lambda: reading(node_of(2), memory_used_before_bytes=40 * GIB),
        "holds 40.0 GiB of processes not visible here",
    ),
    "by utilization": (lambda: reading(node_of(2), utilization_before_percent=97), "is 97 % busy"),
}


@pytest.mark.parametrize("kind", BUSY)
def test_a_gpu_in_use_is_not_measured_and_force_measures_it_all_the_same(kind: str) -> None:
    make, words = BUSY[kind]
    error = refusal(make(), BusyError)
    assert error.message.startswith("not measured: ")
    assert words in error.message
    assert "--force" in str(error.next_step)
    assert len(plan(make(), force=True).devices) == 2


def test_a_process_on_a_gpu_that_takes_no_part_is_in_nobodys_way() -> None:
    node = node_of(3, processes=[Process(nvml_index=2, pid=4711, memory_used_bytes=GIB)])
    assert len(plan(node, nproc=2).devices) == 2


@pytest.mark.parametrize(
    ("used", "busy"), [(0, 0), (256 * 2**20, 5), (None, None)], ids=["idle", "at the limits", "not known"]
)
def test_a_gpu_at_rest_is_measured(used: int | None, busy: int | None) -> None:
    node = reading(node_of(2), memory_used_before_bytes=used, utilization_before_percent=busy)
    assert len(plan(node).devices) == 2


def test_just_above_the_limits_a_gpu_is_in_use() -> None:
    refusal(reading(node_of(2), memory_used_before_bytes=256 * 2**20 + 1), BusyError)
    refusal(reading(node_of(2), utilization_before_percent=6), BusyError)


def test_a_workload_that_does_not_fit_beside_what_is_there_is_refused_with_both_sizes() -> None:
    error = refusal(reading(node_of(2), memory_free_before_bytes=3 * GIB), CannotMeasureError, force=True)
    # 201375744 parameters x 16 + 4096 x 4096 x 12 layers x 8 + 2 GiB = 6.5 GiB
    assert "has 3.0 GiB free, the workload needs about 6.5" in error.message


def test_a_smaller_batch_fits_into_less() -> None:
    node = reading(node_of(2), memory_free_before_bytes=6 * GIB)
    refusal(node, CannotMeasureError)
    assert plan(node, batch=512).per_rank_batch == 256


def test_free_memory_that_nobody_knows_is_no_reason_to_refuse() -> None:
    assert len(plan(reading(node_of(2), memory_free_before_bytes=None)).devices) == 2


# Faults on purpose


def test_a_fault_on_a_rank_that_does_not_exist_is_refused_as_it_was_spelled() -> None:
    error = refusal(node_of(2), UsageError, inject=(Fault("compute", 2, percent=20.0),))
    assert error.message == "--inject compute:rank=2,percent=20: there are only ranks 0 to 1"


@pytest.mark.parametrize("kind", sorted(GPU_FAULTS))
def test_a_fault_that_needs_a_gpu_is_refused_on_the_cpu(kind: str) -> None:
    fault = Fault(kind, 1, device=0 if kind == "context" else None)
    error = refusal(node_of(0), UsageError, device="cpu", inject=(fault,))
    assert error.message == f"--inject {fault.spelled()}: this fault acts on a GPU, and the ranks work on the CPU"
    assert plan(node_of(2), inject=(fault,)).devices


@pytest.mark.parametrize(
    ("device", "problem"), [(1, "device 1 is that rank's own"), (2, "there are only devices 0 to 1")]
)
def test_a_context_goes_to_another_device_that_exists(device: int, problem: str) -> None:
    fault = Fault("context", 1, device=device)
    error = refusal(node_of(2), UsageError, inject=(fault,))
    assert error.message == f"--inject context:rank=1,device={device}: {problem}"


def test_a_fault_on_the_last_rank_is_accepted() -> None:
    assert plan(node_of(2), inject=(Fault("compute", 1, percent=20.0),)).devices


# Workloads that do not apply


def test_on_the_cpu_what_needs_gpus_is_skipped_with_its_reason() -> None:
    assert skipped(CPU_NODE)["data_parallel"] == "nn.DataParallel needs GPUs"
    assert skipped(CPU_NODE)["links"] == "there are no links between CPU ranks: they share the host's memory"
    assert plan(CPU_NODE).workloads == ["solo", "ddp", "collectives"]


def test_one_gpu_skips_what_needs_two_with_their_reasons() -> None:
    reasons = skipped(node_of(1))
    assert reasons["data_parallel"] == "one GPU: nothing to be parallel over"
    assert reasons["collectives"] == "one rank: nothing to communicate"
    assert plan(node_of(1)).workloads == ["solo", "ddp", "links"]


def test_workloads_that_were_not_asked_for_are_skipped_as_such() -> None:
    reasons = skipped(node_of(2), workloads=("ddp",))
    assert {name: reasons[name] for name in ("solo", "data_parallel", "collectives", "links")} == dict.fromkeys(
        ("solo", "data_parallel", "collectives", "links"), "not asked for"
    )


def test_nothing_but_workloads_that_do_not_apply_is_wrong_use() -> None:
    error = refusal(CPU_NODE, UsageError, workloads=("data_parallel",))
    assert error.message == "--workload data_parallel: nn.DataParallel needs GPUs"
    error = refusal(node_of(1), UsageError, workloads=("collectives",))
    assert error.message == "--workload collectives: one rank: nothing to communicate"


def test_a_workload_that_does_not_apply_beside_one_that_does_is_skipped() -> None:
    assert plan(CPU_NODE, workloads=("data_parallel", "ddp")).workloads == ["ddp"]


# The CPU only where there is surely no GPU


def kind_of(node: Node, **asked: Any) -> str:
    return choose_kind(node, BenchSettings(**asked))


def test_without_any_sign_of_a_gpu_the_cpu_is_measured() -> None:
    assert kind_of(make_node()) == "cpu"


def test_with_a_gpu_the_gpu_is_measured() -> None:
    assert kind_of(node_of(1)) == "cuda"


def test_with_a_gpu_the_cpu_is_measured_when_it_was_asked_for() -> None:
    assert kind_of(node_of(1), device="cpu") == "cpu"


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"])
@pytest.mark.parametrize("value", ["", " ", "-1", "none", "void", "NoDevFiles"])
def test_a_variable_that_grants_nothing_asks_for_no_gpu(name: str, value: str) -> None:
    assert kind_of(make_node(environment={name: value})) == "cpu"


ASKING: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"environment": {"NVIDIA_VISIBLE_DEVICES": "all"}}, {}, "NVIDIA_VISIBLE_DEVICES=all"),
    ({"environment": {"CUDA_VISIBLE_DEVICES": "0,1"}}, {}, "CUDA_VISIBLE_DEVICES=0,1"),
    ({"environment": {"CUDA_VISIBLE_DEVICES": "-1", "NVIDIA_VISIBLE_DEVICES": "0"}}, {}, "NVIDIA_VISIBLE_DEVICES=0"),
    ({}, {"expect_gpus": 8}, "--expect-gpus 8"),
    ({}, {"devices": ("0", "1")}, "--devices 0,1"),
    ({}, {"device": "cuda"}, "--device cuda was given"),
    ({"gpu_evidence": ["PCI device 0000:06:00.0"]}, {}, "PCI device 0000:06:00.0"),
    ({"gpu_evidence": ["/dev/nvidiactl"]}, {}, "/dev/nvidiactl"),
]


@pytest.mark.parametrize(("values", "asked", "sign"), ASKING, ids=[row[2] for row in ASKING])
def test_any_sign_of_a_gpu_rules_the_cpu_out_and_is_named_with_the_drivers_reason(
    values: dict[str, Any], asked: dict[str, Any], sign: str
) -> None:
    error = refusal(make_node(**values), CannotMeasureError, **asked)
    assert error.message == (
        f"there should be a GPU here ({sign}), but none can be used: the driver's library libnvidia-ml.so.1 is not here"
    )
    assert "--device cpu" in str(error.next_step)


@pytest.mark.parametrize(
    ("values", "asked"), [row[:2] for row in ASKING if not row[1]], ids=[row[2] for row in ASKING if not row[1]]
)
def test_with_any_sign_of_a_gpu_the_cpu_is_measured_when_it_was_asked_for(
    values: dict[str, Any], asked: dict[str, Any]
) -> None:
    assert kind_of(make_node(**values), device="cpu", **asked) == "cpu"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("DRIVER_NOT_LOADED", "kernel driver is not loaded"),
        ("LIB_RM_VERSION_MISMATCH", "differ in version"),
        ("UNKNOWN", "recreate the container"),
        ("IRQ_ISSUE", "IRQ_ISSUE"),
        (None, "NVML lists no GPU"),
    ],
)
def test_a_dead_driver_never_passes_as_a_cpu_node(error: str | None, words: str) -> None:
    node = make_node(gpu_evidence=["PCI device 0000:06:00.0", "/dev/nvidia0"], nvml_error=error)
    assert words in refusal(node, CannotMeasureError).message


def test_a_long_list_of_signs_is_cut_short() -> None:
    node = make_node(gpu_evidence=[f"PCI device 0000:0{index}:00.0" for index in range(8)])
    message = refusal(node, CannotMeasureError).message
    assert "0000:02:00.0" in message
    assert "0000:03:00.0" not in message


def test_expecting_gpus_on_the_cpu_is_a_contradiction() -> None:
    error = refusal(make_node(), UsageError, device="cpu", expect_gpus=2)
    assert error.message == "--device cpu and --expect-gpus contradict each other"


# Experiments


def test_peer_to_peer_is_measured_between_gpus_only() -> None:
    assert plan(node_of(2), what_if=("p2p",)).backend == "nccl"
    on_cpu = refusal(CPU_NODE, UsageError, what_if=("p2p",))
    assert on_cpu.message == "--what-if p2p compares NCCL with itself, and ranks on the CPU talk over gloo"
    alone = refusal(node_of(1), UsageError, what_if=("p2p",))
    assert alone.message == "--what-if p2p needs two GPUs: one has no peer"
    launched = refusal(node_of(2), UsageError, Share("torchrun", 0, 2, "key"), what_if=("p2p",))
    assert launched.message == "--what-if starts ranks of its own, and these belong to torchrun"

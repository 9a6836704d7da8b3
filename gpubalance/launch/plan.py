"""What will run where, decided and checked before anything starts. Pure: a node, settings, a share in; a plan out.

Every refusal is one sentence: exit 2 when the request cannot fit this machine, exit 3 when this machine cannot be
measured as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpubalance.errors import BusyError, CannotMeasureError, UsageError
from gpubalance.faults import GPU_FAULTS
from gpubalance.launch.cores import Masks, bound, cpu_slots, short_of_cpu
from gpubalance.launch.launcher_env import Share
from gpubalance.launch.sizing import choose_model, memory_needed_bytes
from gpubalance.node.devices import select_devices
from gpubalance.node.nvml import explain
from gpubalance.record.node import Device, Node, Process
from gpubalance.record.run import Plan, Skipped
from gpubalance.settings import WORKLOADS, BenchSettings

BUSY_MEMORY_BYTES = 256 * 2**20
"""An idle GPU shows a few MB by the v2 call; a bare CUDA context of somebody else is 300 to 600 MB."""

BUSY_UTILIZATION_PERCENT = 5


def make_plan(node: Node, settings: BenchSettings, share: Share, masks: Masks = ()) -> tuple[Plan, list[Skipped]]:
    """The plan and what it leaves out. `masks`: the cores that a launcher gave each rank on the CPU.

    Raises UsageError (exit 2), CannotMeasureError or BusyError (exit 3).
    """
    kind, world = choose_kind(node, settings), share.world
    devices = _gpus(node, settings, world) if kind == "cuda" else cpu_slots(node, settings, world, masks)
    notes = [share.note] if share.note else []
    if kind == "cuda":
        notes += [*_fewer_gpus(node, settings, devices, world), *bound(node, share)]
    else:
        notes += short_of_cpu(node, devices)
    notes += _numbering(node, devices)
    ranks = len(devices)
    model, default_batch = choose_model(settings.model, devices)
    workloads, skipped = _workloads(settings, kind, ranks)
    batch = settings.batch if settings.batch is not None else default_batch * ranks
    notes += _check_batch(batch, ranks, workloads, explicit=settings.workloads is not None)
    _check_faults(settings, kind, ranks)
    _check_experiments(settings, kind, ranks, share)
    plan = Plan(
        backend="nccl" if kind == "cuda" else "gloo",
        launcher=share.launcher,
        devices=devices,
        global_batch=batch,
        per_rank_batch=batch // ranks,
        model=model,
        workloads=workloads,
        notes=notes,
    )
    if kind == "cuda":
        _check_room(plan)
    return plan, skipped


def choose_kind(node: Node, settings: BenchSettings) -> str:
    """Cuda or cpu. A broken GPU node must never pass as a CPU node: any sign of a GPU, or of somebody asking for
    one, rules the CPU out unless `--device cpu` was given.
    """
    if settings.device == "cpu":
        if settings.expect_gpus:
            raise UsageError("--device cpu and --expect-gpus contradict each other")
        return "cpu"
    if node.devices:
        return "cuda"
    asked = _asked_for_gpu(node, settings)
    if settings.device == "auto" and not node.gpu_evidence and asked is None:
        return "cpu"
    seen = ", ".join(node.gpu_evidence[:3]) or asked or "--device cuda was given"
    why = explain(node.nvml_error) if node.nvml_error else "NVML lists no GPU"
    raise CannotMeasureError(
        f"there should be a GPU here ({seen}), but none can be used: {why}",
        "mend the driver or the container, or give --device cpu to see the method on the CPU",
    )


def _asked_for_gpu(node: Node, settings: BenchSettings) -> str | None:
    if settings.expect_gpus:
        return f"--expect-gpus {settings.expect_gpus}"
    if settings.devices:
        return f"--devices {','.join(settings.devices)}"
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        value = node.environment.get(name, "").strip()
        if value and value not in ("-1", "none", "void", "NoDevFiles"):
            return f"{name}={value}"
    return None


def _gpus(node: Node, settings: BenchSettings, world: int | None) -> list[Device]:
    visible = sorted((d for d in node.devices if d.cuda_ordinal is not None), key=lambda d: d.cuda_ordinal or 0)
    if not visible:
        dropped = node.visibility.dropped[0] if node.visibility and node.visibility.dropped else None
        why = f" ({dropped.entry!r}: {dropped.reason})" if dropped else ""
        raise CannotMeasureError(
            f"CUDA_VISIBLE_DEVICES hides all {len(node.devices)} GPUs{why}", "unset it, or give --device cpu"
        )
    chosen = select_devices(settings.devices, visible) if settings.devices else visible
    wanted = world if world is not None else settings.nproc
    if wanted is not None and wanted > len(chosen):
        visible_text = f"{len(chosen)} of {len(node.devices)} GPUs visible; two ranks cannot share a GPU"
        if world is not None:
            step = "let each task see all GPUs (srun --gpu-bind=none), or start one task a node"
            raise UsageError(f"{wanted} ranks of the launcher, {visible_text}", step)
        raise UsageError(f"{wanted} ranks asked, {visible_text}", f"give --nproc {len(chosen)}, or --device cpu")
    chosen = chosen[:wanted]
    for device in chosen:
        _check_usable(device)
        if not settings.force:
            _check_idle(device, node)
    return chosen


def _fewer_gpus(node: Node, settings: BenchSettings, chosen: Sequence[Device], world: int | None) -> list[str]:
    notes = []
    if len(chosen) < len(node.devices):
        visible = sum(device.cuda_ordinal is not None for device in node.devices)
        if settings.devices:
            by = "--devices"
        elif len(chosen) == visible:
            by = "CUDA_VISIBLE_DEVICES"
        else:
            by = "--nproc" if world is None else "the launcher"
        notes.append(f"{len(chosen)} of {len(node.devices)} GPUs take part (restricted by {by})")
    dropped = node.visibility.dropped if node.visibility else []
    notes += [f"CUDA_VISIBLE_DEVICES: {entry.entry!r} dropped: {entry.reason}" for entry in dropped]
    return notes


def _label(device: Device) -> str:
    name = device.uuid or device.pci_bus_id
    return f"GPU cuda:{device.cuda_ordinal} (nvml:{device.nvml_index}{f', {name}' if name else ''})"


def _check_usable(device: Device) -> None:
    if device.missing.get("uuid") == "GPU_IS_LOST" or device.missing.get("memory_total_bytes") == "GPU_IS_LOST":
        raise CannotMeasureError(f"{_label(device)} is lost: it fell off the bus", "reset it or reboot the node")
    if device.mig_enabled:
        raise CannotMeasureError(
            f"{_label(device)} is in MIG mode: NCCL and peer copies do not work across its slices",
            "leave it out with --devices, or turn MIG off (nvidia-smi -mig 0)",
        )
    mode = device.readings.get("compute_mode")
    if mode == 2:  # NVML_COMPUTEMODE_PROHIBITED
        raise CannotMeasureError(f"{_label(device)} is in compute mode Prohibited", "nvidia-smi -c 0 lifts it")
    if mode == 3:  # NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
        raise CannotMeasureError(
            f"{_label(device)} is in compute mode Exclusive Process, which stops peers from reaching it",
            "nvidia-smi -c 0 lifts it",
        )


def _check_idle(device: Device, node: Node) -> None:
    busy = busy_with(device, node)
    if busy is not None:
        raise BusyError(
            f"not measured: {_label(device)} {busy}",
            "stop it, leave the GPU out with --devices, or measure all the same with --force",
        )


def busy_with(device: Device, node: Node) -> str | None:
    """What somebody else does on the GPU, or None when it is idle."""
    for process in node.processes:
        if process.nvml_index == device.nvml_index:
            used = process.memory_used_bytes
            size = f", {used / 2**30:.1f} GiB" if used is not None else ""
            return f"is in use by {_whom(process, node)}{size}"
    before = device.readings.get("memory_used_before_bytes")
    busy = device.readings.get("utilization_before_percent")
    if isinstance(before, int | float) and before > BUSY_MEMORY_BYTES:
        return f"holds {before / 2**30:.1f} GiB of processes not visible here"
    if isinstance(busy, int | float) and busy > BUSY_UTILIZATION_PERCENT:
        return f"is {busy} % busy"
    return None


def _whom(process: Process, node: Node) -> str:
    """In a container the driver may count processes as the host does: the number may mean somebody else here."""
    if node.container is not None:
        return "a process that may not be visible here"
    return f"pid {process.pid} ({process.owner})" if process.owner else f"pid {process.pid}"


def _numbering(node: Node, devices: Sequence[Device]) -> list[str]:
    """Without CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA numbers the fastest model first, and only CUDA knows which it is."""
    if len({device.name for device in devices}) < 2 or node.environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return []
    return ["different models: numbers follow the PCI bus here; set CUDA_DEVICE_ORDER=PCI_BUS_ID so that CUDA's do too"]


def _workloads(settings: BenchSettings, kind: str, ranks: int) -> tuple[list[str], list[Skipped]]:
    wanted = settings.workloads or WORKLOADS
    reasons = {}
    if kind == "cpu":
        reasons["data_parallel"] = "nn.DataParallel needs GPUs"
        reasons["links"] = "there are no links between CPU ranks: they share the host's memory"
    elif ranks == 1:
        reasons["data_parallel"] = "one GPU: nothing to be parallel over"
    if ranks == 1:
        reasons["collectives"] = "one rank: nothing to communicate"
    explicit = [name for name in settings.workloads or () if name in reasons]
    if explicit and len(explicit) == len(wanted):
        raise UsageError(f"--workload {explicit[0]}: {reasons[explicit[0]]}")
    kept = [name for name in WORKLOADS if name in wanted and name not in reasons]
    skipped = [Skipped(what=name, reason=reasons[name]) for name in WORKLOADS if name in wanted and name in reasons]
    skipped += [Skipped(what=name, reason="not asked for") for name in WORKLOADS if name not in wanted]
    return kept, skipped


def _check_batch(batch: int, ranks: int, workloads: Sequence[str], *, explicit: bool) -> list[str]:
    """Notes on a batch. Raises UsageError when ranks of a gang would get unequal work."""
    if batch < ranks:
        raise UsageError(f"global batch {batch} is smaller than the {ranks} ranks", f"give --batch {ranks} or more")
    remainder = batch % ranks
    if remainder and set(workloads) - {"data_parallel", "collectives", "links"}:
        below, above = batch - remainder, batch - remainder + ranks
        only = "" if explicit else ", or --workload data_parallel, which splits unevenly"
        raise UsageError(
            f"global batch {batch} does not divide over {ranks} ranks: {remainder} samples would be left over",
            f"give --batch {below} or {above}{only}",
        )
    shard = -(-batch // ranks)
    fed = -(-batch // shard)
    if "data_parallel" in workloads and fed < ranks:
        below, above = batch - remainder, batch - remainder + ranks
        fed_text = f"DataParallel splits {batch} samples into shards of {shard}, which feed {fed} of {ranks} GPUs"
        return [f"{fed_text}; the others are not fed ({below} or {above} samples would feed all)"]
    return []


def _check_faults(settings: BenchSettings, kind: str, ranks: int) -> None:
    """Raise UsageError for a fault that these ranks or devices cannot play. Rank r works on device r."""
    for fault in settings.inject:
        spelled = f"--inject {fault.spelled()}"
        if fault.rank >= ranks:
            raise UsageError(f"{spelled}: there are only ranks 0 to {ranks - 1}")
        if fault.kind in GPU_FAULTS and kind == "cpu":
            raise UsageError(f"{spelled}: this fault acts on a GPU, and the ranks work on the CPU")
        if fault.device is not None and fault.device >= ranks:
            raise UsageError(f"{spelled}: there are only devices 0 to {ranks - 1}")
        if fault.device == fault.rank:
            raise UsageError(f"{spelled}: device {fault.device} is that rank's own", "name the device of another rank")


def _check_experiments(settings: BenchSettings, kind: str, ranks: int, share: Share) -> None:
    if "p2p" not in settings.what_if:
        return
    if kind == "cpu":
        raise UsageError("--what-if p2p compares NCCL with itself, and ranks on the CPU talk over gloo", "leave it out")
    if ranks < 2:
        raise UsageError("--what-if p2p needs two GPUs: one has no peer")
    if share.rank is not None:
        raise UsageError(
            f"--what-if starts ranks of its own, and these belong to {share.launcher}",
            f"run gpubalance bench --nproc {ranks} --what-if p2p without it",
        )


def _check_room(plan: Plan) -> None:
    needed = memory_needed_bytes(plan.model, plan.per_rank_batch)
    for device in plan.devices:
        free = device.readings.get("memory_free_before_bytes")
        if isinstance(free, int | float) and free < needed:
            raise CannotMeasureError(
                f"{_label(device)} has {free / 2**30:.1f} GiB free, the workload needs about {needed / 2**30:.1f}",
                "free it, or give a smaller --batch",
            )

"""What the types of a record cannot say: that its parts fit together. A file may have been edited, cut or made by
something else, and whoever judges a run relies on this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpubalance.record.against import HISTORY_IDS
from gpubalance.record.gates import gates_problem
from gpubalance.record.link_consistency import link_problems
from gpubalance.record.run import Run
from gpubalance.record.timings import BUSY, STAGES, DdpAttempt


def contradiction(run: Run) -> str | None:
    """The first place where a run contradicts itself, in words; None when everything fits."""
    checks = (
        _devices,
        _attempts,
        _stages,
        _samples,
        _numbers,
        link_problems,
        _margin,
        _thresholds,
        _hang,
        _experiments,
        _against,
    )
    return next((text for check in checks for text in check(run)), None)


def _devices(run: Run) -> Iterator[str]:
    count = len(run.plan.devices)
    if count == 0:
        yield "plan.devices is empty"
    named: dict[str, Iterable[int]] = {
        "ranks": (info.device for info in run.ranks),
        "solo": (solo.device for solo in run.solo),
        "probes": (probe.device for probe in run.probes),
        "memory": (memory.device for memory in run.memory),
        "samples.devices": (samples.device for samples in run.samples.devices),
        "samples.processes": (process.device for process in run.samples.processes),
        "samples.counters": (reading.device for reading in run.samples.counters),
        "ddp": (rank.device for attempt in run.ddp for rank in attempt.ranks),
    }
    for place, devices in named.items():
        yield from (f"{place} names device {i}, the plan has {count}" for i in devices if not 0 <= i < count)
    ranked: dict[str, Iterable[int]] = {
        "ranks": (info.rank for info in run.ranks),
        "solo": (solo.rank for solo in run.solo),
        "probes": (probe.rank for probe in run.probes),
        "memory": (memory.rank for memory in run.memory),
    }
    ways = run.nccl.transports if run.nccl is not None else []
    ranked["nccl.transports"] = (rank for way in ways for rank in (way.sender, way.receiver))
    for place, ranks in ranked.items():
        yield from (f"{place} names rank {i}, the plan has {count}" for i in ranks if not 0 <= i < count)


def _attempts(run: Run) -> Iterator[str]:
    for index, attempt in enumerate(run.ddp):
        if [rank.rank for rank in attempt.ranks] != list(range(len(attempt.ranks))) or not attempt.ranks:
            yield f"ddp.{index}.ranks are not numbered from 0"
        if not _alike({len(rank.fenced) for rank in attempt.ranks}):
            yield f"ddp.{index}: not as many blocks on every rank"
        if not _alike(_steps(attempt)):
            yield f"ddp.{index}: not as many steps in every block"


def _alike(lengths: set[int]) -> bool:
    """One length, and not none."""
    return len(lengths) == 1 and 0 not in lengths


def _steps(attempt: DdpAttempt) -> set[int]:
    """How many steps the lists of all blocks hold."""
    blocks = [block for rank in attempt.ranks for block in rank.fenced]
    return {len(values) for block in blocks for values in (block.compute_ms, block.fence_ms, block.transfer_ms)}


def _stages(run: Run) -> Iterator[str]:
    """Stages and host use: one value a fenced block, or none at all."""
    for index, attempt in enumerate(run.ddp):
        for steps in attempt.ranks:
            place = f"ddp.{index}.ranks.{steps.rank}"
            blocks = len(steps.fenced)
            yield from _times_by_name(f"{place}: stages_ms", steps.stages_ms, STAGES, blocks)
            yield from _times_by_name(f"{place}: means_ms", steps.means_ms, (*STAGES, BUSY), blocks)
            if len(steps.busy_ms) not in (0, blocks) or any(value < 0 for value in steps.busy_ms):
                yield f"{place}: busy_ms has not one value a block, 0 or more"
            if len(steps.host) not in (0, blocks):
                yield f"{place}: host has not one entry a block"
            if any(value is not None and value < 0 for use in steps.host for value in use.model_dump().values()):
                yield f"{place}: host holds a number below 0"


def _times_by_name(
    place: str, times: Mapping[str, Sequence[float]], names: Sequence[str], blocks: int
) -> Iterator[str]:
    if times and set(times) != set(names):
        yield f"{place} has not the stages {', '.join(names)}"
    if any(len(values) != blocks for values in times.values()):
        yield f"{place} has not one value a block"
    if any(value < 0 for values in times.values() for value in values):
        yield f"{place} holds a time below 0"


def _samples(run: Run) -> Iterator[str]:
    ticks = len(run.samples.t_s)
    for samples in run.samples.devices:
        for name, values in samples.columns.items():
            if len(values) != ticks:
                yield f"samples: column {name} of device {samples.device} has {len(values)} values for {ticks} ticks"


def _numbers(run: Run) -> Iterator[str]:
    """Times, rates and sizes that others are divided by."""
    ranks = [rank for attempt in run.ddp for rank in attempt.ranks]
    parallel = [run.data_parallel] if run.data_parallel is not None else []
    numbers: dict[str, Sequence[float]] = {
        "plan.per_rank_batch": [run.plan.per_rank_batch],
        "ddp: compute_ms": [value for rank in ranks for block in rank.fenced for value in block.compute_ms],
        "ddp: overlapped_step_ms": [value for rank in ranks for value in rank.overlapped_step_ms],
        "ddp: device_step_ms": [rank.device_step_ms for rank in ranks if rank.device_step_ms is not None],
        "ddp: collector_ms": [rank.collector_ms for rank in ranks if rank.collector_ms is not None],
        "ddp: host wall_s": [use.wall_s for rank in ranks for use in rank.host],
        "ddp: samples_per_step": [rank.samples_per_step for rank in ranks],
        "solo: samples_per_step": [solo.samples_per_step for solo in run.solo],
        "ddp: units_per_step": [rank.units_per_step for rank in ranks],
        "solo: eager_step_ms": [solo.eager_step_ms for solo in run.solo],
        "solo: graph_step_ms": [solo.graph_step_ms for solo in run.solo if solo.graph_step_ms is not None],
        "probes: gemm_tflops": [probe.gemm_tflops for probe in run.probes],
        "probes: memory_copy_gb_per_s": [probe.memory_copy_gb_per_s for probe in run.probes],
        "probes: host_to_device_gb_per_s": [probe.host_to_device_gb_per_s for probe in run.probes],
        "probes: device_to_host_gb_per_s": [probe.device_to_host_gb_per_s for probe in run.probes],
        "probes: launch_us": [probe.launch_us for probe in run.probes if probe.launch_us is not None],
        "collectives: ranks": [row.ranks for row in run.collectives],
        "collectives: size_bytes": [row.size_bytes for row in run.collectives],
        "collectives: time_us": [row.time_us for row in run.collectives],
        "data_parallel: step_ms": [value for p in parallel for value in (p.step_ms, p.one_device_step_ms)],
        "data_parallel: number of devices": [
            len(values) for p in parallel for values in (p.shards, p.peak_memory_bytes)
        ],
    }
    for name, values in numbers.items():
        yield from (f"{name} is {value:g}, it must be above 0" for value in values if not value > 0)


def _margin(run: Run) -> Iterator[str]:
    setting = run.settings.get("margin")
    if setting is None or setting.value is None:
        return
    numbers = setting.value if isinstance(setting.value, list) else []
    margins = [value for value in numbers if isinstance(value, int | float)]
    if len(margins) != 2 or len(numbers) != 2 or not 0 < margins[0] < margins[1]:
        yield "settings.margin is not two shares, to warn and to fail"


def _thresholds(run: Run) -> Iterator[str]:
    problem = gates_problem(run)
    if problem is not None:
        yield problem


def _hang(run: Run) -> Iterator[str]:
    count = len(run.plan.devices)
    if run.hang is not None:
        yield from (
            f"hang names rank {r.rank}, the plan has {count}" for r in run.hang.ranks if not 0 <= r.rank < count
        )
    found = run.bisection
    if found is None:
        return
    sets = [*(trial.ranks for trial in found.trials), *([found.smallest] if found.smallest is not None else [])]
    for ranks in sets:
        if not ranks or any(not 0 <= rank < count for rank in ranks):
            yield f"bisection: ranks {ranks} are none of the {count} of the plan"
    if found.smallest is not None and (found.smallest, None) not in [(t.ranks, t.switch) for t in found.trials]:
        yield "bisection: the smallest failing set was not tried"


def _against(run: Run) -> Iterator[str]:
    for finding in run.against.findings if run.against is not None else ():
        if finding.id not in HISTORY_IDS:
            yield f"against: {finding.id!r:.40} is no check that looks at earlier runs"


def _experiments(run: Run) -> Iterator[str]:
    for experiment in run.experiments:
        if len(experiment.arms) != 2:
            yield f"experiment {experiment.name} has {len(experiment.arms)} sides, not 2"
        for row in (row for arm in experiment.arms for row in arm.rows):
            if not (row.size_bytes > 0 and row.time_us > 0 and row.bus_bandwidth_gb_per_s > 0):
                yield f"experiment {experiment.name}: size, time and bandwidth must be above 0"

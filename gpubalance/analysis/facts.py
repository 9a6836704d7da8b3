"""All facts of a run, derived in one place. Pure: the same run gives the same facts, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpubalance.analysis.attribution import Attribution
from gpubalance.analysis.balance import Balance, LinkLoss, balance_of
from gpubalance.analysis.bandwidth import NOTHING, Bandwidth, bandwidth_of
from gpubalance.analysis.causes import MOST_EXPLAINED, attribute_causes
from gpubalance.analysis.host_links import HostFacts, host_facts
from gpubalance.analysis.kinds import Kind, kinds_of, named_kinds
from gpubalance.analysis.links import LinkFacts, link_facts
from gpubalance.analysis.memory import Memory, memory_of
from gpubalance.analysis.sampled import Sampled, sampled_each, window_of
from gpubalance.analysis.scaling import Scaling, scaling_of
from gpubalance.analysis.steps import Steps, arrays_of
from gpubalance.analysis.stragglers import Stragglers, find_stragglers
from gpubalance.analysis.thermal import NOT_LOADED, ThermalReach, thermal_reach
from gpubalance.analysis.transient import Transient, find_transient
from gpubalance.analysis.trust import NOT_LOOKED_AT, Trust, trust_of
from gpubalance.analysis.utilization import Utilization, utilization_of
from gpubalance.record.gates import gates_of
from gpubalance.record.node import Device
from gpubalance.record.run import Run
from gpubalance.record.timings import DdpAttempt
from gpubalance.thresholds import Gates

Pattern = Literal["healthy", "persistent", "majority", "developing", "intermittent", "rotating", "unclear"]


@dataclass(frozen=True)
class AttemptFacts:
    """What one pass of the ddp phase shows."""

    attempt: int
    device_of_rank: tuple[int, ...]
    units: tuple[float, ...]
    steps_per_block: int
    balance: Balance
    stragglers: Stragglers
    transient: Transient
    compute_ms: tuple[float, ...]
    """By rank: median compute."""
    wait_ms: tuple[float, ...]
    """By rank: mean wait. The slowest rank waits least."""
    overlapped_ms: float | None
    measured_s: float
    """Time that the fenced blocks took."""
    trust: Trust = NOT_LOOKED_AT
    pattern: Pattern = "unclear"
    """How slowness came: steadily, growing, now and then on one rank or on ranks in turn, or not at all."""
    kinds: tuple[Kind, ...] = ()
    """Ranks by what their devices are; each is held against its own kind. Empty where nobody knew the devices."""
    attributions: tuple[Attribution, ...] = ()
    """Why each named rank is slow, as far as it could be seen; also a rank with more work, and one that is slow now
    and then."""
    not_explained: int = 0
    """Slow ranks beyond the worst ones, for which no cause was looked for."""


@dataclass(frozen=True)
class Facts:
    """Everything that is derived from a run before anybody judges it."""

    margin_warn: float
    margin_fail: float
    attempts: tuple[AttemptFacts, ...]
    utilization: Utilization
    memory: Memory
    scaling: Scaling
    sampled: tuple[Sampled | None, ...]
    """By rank: what the sensor saw during overlapped training."""
    gemm_clock_mhz: tuple[float | None, ...]
    """By device: mean SM clock while it multiplied matrices alone."""
    data_parallel_sampled: tuple[Sampled | None, ...]
    """By device: what the sensor saw during DataParallel."""
    links: LinkFacts | None = None
    host: HostFacts | None = None
    thermal: ThermalReach = NOT_LOADED
    """Whether the run was long enough to see what heat does."""
    bandwidth: Bandwidth = NOTHING
    """What the links let expect of collectives, and what was measured."""

    @property
    def first(self) -> AttemptFacts | None:
        """The attempt that is judged; later ones confirm it."""
        return self.attempts[0] if self.attempts else None


def compute_facts(run: Run, margin_warn: float, margin_fail: float) -> Facts:
    """Facts of a run under these margins (shares) and the run's own thresholds."""
    gates = gates_of(run)
    links = link_facts(run, gates["link_warn"])
    loss = _link_loss(run, links)
    devices = run.plan.devices
    attempts = tuple(
        _with_causes(
            run,
            attempt,
            steps := arrays_of(attempt),
            attempt_facts(
                attempt, margin_warn, margin_fail, on_cpu=gates.on_cpu, gates=gates, links=loss, devices=devices,
                steps=steps,
            ),
        )
        for attempt in run.ddp
    )  # fmt: skip
    overlapped_ms = attempts[0].overlapped_ms if attempts else None
    seen = attempts[0].device_of_rank if attempts else tuple(range(len(devices)))
    window = window_of(run, "ddp overlapped", "ddp fenced", "ddp", "solo")
    parallel = window_of(run, "data_parallel steady")
    product = window_of(run, "probe gemm")
    all_devices = range(len(run.plan.devices))
    return Facts(
        margin_warn=margin_warn,
        margin_fail=margin_fail,
        attempts=attempts,
        utilization=utilization_of(run, overlapped_ms),
        memory=memory_of(run),
        scaling=scaling_of(run, overlapped_ms),
        sampled=sampled_each(run, window, seen),
        gemm_clock_mhz=tuple(seen.sm_clock_mhz if seen else None for seen in sampled_each(run, product, all_devices)),
        data_parallel_sampled=sampled_each(run, parallel, all_devices),
        links=links,
        host=host_facts(run),
        thermal=thermal_reach(run),
        bandwidth=bandwidth_of(run),
    )


BUCKET_BYTES = 25 * 2**20
"""DistributedDataParallel's bucket_cap_mb; a layer is never split."""


def _link_loss(run: Run, links: LinkFacts | None) -> LinkLoss | None:
    """The last bucket holds a layer's gradients or as many as there is room for; they are float32."""
    if links is None or links.slowest is None:
        return None
    model = run.plan.model
    gradient_bytes = 4 * max(1, model.parameters)
    return LinkLoss(links.slowest, min(1.0, max(1 / max(1, model.layers), BUCKET_BYTES / gradient_bytes)))


def _with_causes(run: Run, attempt: DdpAttempt, steps: Steps, facts: AttemptFacts) -> AttemptFacts:
    majority = facts.stragglers.majority
    rising = [rank for rank in facts.stragglers.ranks if rank.state == "developing"]
    slow = majority or (*facts.stragglers.named, *sorted(rising, key=lambda rank: -rank.last_ratio))
    found = attribute_causes(run, attempt, steps, slow, facts.transient, tuple(speed.rank for speed in majority))
    return replace(facts, attributions=found, not_explained=max(0, len(slow) - MOST_EXPLAINED))


def attempt_facts(
    attempt: DdpAttempt,
    warn: float,
    fail: float,
    *,
    on_cpu: bool,
    gates: Gates | None = None,
    links: LinkLoss | None = None,
    devices: Sequence[Device] = (),
    steps: Steps | None = None,
) -> AttemptFacts:
    """Facts of one attempt, causes apart; without gates under the defaults, without devices as if all were alike.
    `steps` are those of the attempt, where the caller has them already.
    """
    steps = steps or arrays_of(attempt)
    balance = balance_of(steps, links=links)
    device_of_rank = tuple(rank.device for rank in attempt.ranks)
    kinds = kinds_of(devices) if devices else ()
    medians = steps.medians()
    stragglers = find_stragglers(steps, warn, fail, [kinds[device] for device in device_of_rank] if kinds else None)
    transient = find_transient(steps, balance, on_cpu=on_cpu, gates=gates)
    return AttemptFacts(
        attempt=attempt.attempt,
        device_of_rank=device_of_rank,
        units=tuple(rank.units_per_step for rank in attempt.ranks),
        steps_per_block=attempt.steps_per_block,
        balance=balance,
        stragglers=stragglers,
        transient=transient,
        compute_ms=tuple(float(value) for value in medians),
        wait_ms=tuple(float(value) for value in steps.wait_ms()),
        overlapped_ms=steps.overlapped_ms,
        measured_s=_duration(steps),
        trust=trust_of(attempt, steps, warn),
        pattern=_pattern(stragglers, transient),
        kinds=named_kinds(devices, device_of_rank, [float(v) for v in medians / steps.units]) if devices else (),
        attributions=(),
    )


def _pattern(stragglers: Stragglers, transient: Transient) -> Pattern:
    """Steady slowness counts before what comes and goes, because the test for it is the surer one."""
    if stragglers.majority_slow:
        return "majority"
    if stragglers.state in ("warn", "fail"):
        return "persistent"
    if stragglers.state == "developing":
        return "developing"
    if transient.kind != "healthy":
        return transient.kind
    return "unclear" if stragglers.state == "unclear" else "healthy"


def _duration(steps: Steps) -> float:
    total = (steps.compute + steps.fence + steps.transfer)[0].sum()
    return float(total) / 1000

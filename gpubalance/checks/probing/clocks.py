"""T3 and T4: power limits and clocks that differ from their defaults or from those of the peers."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from gpubalance.checks.finding import Finding, State, counted, percent
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of, not_measured
from gpubalance.checks.probing.loaded import loaded_samples, was_loaded, why_no_samples
from gpubalance.checks.probing.measured import each_measured, labels_of, peers_of, values_of, whole
from gpubalance.checks.probing.slowdowns import cap_share
from gpubalance.record.gates import gates_of
from gpubalance.record.probe import Probe

SAME_LIMIT_W = 1.0
"""Limits are whole watts; less is rounding."""
CAPPED_SHARE = 0.5
CLOCK_KEYS = (
    ("sm_clock_max_mhz", "highest SM clock"),
    ("memory_clock_max_mhz", "highest memory clock"),
    ("application_clock_mhz", "application clock"),
)


def power_limits(probe: Probe) -> list[Finding]:
    """T3: the power limit in force against the board's default, against what was set, and over GPUs of one model.

    More than 5 % below the default or below what was set warns, and so do limits that differ (ml-engineering: a table
    of power limits of which one was low).
    """
    gpus = gpus_of(probe)
    measure = whole("power_limit_w", "power_default_limit_w")
    least = 1 - gates_of(probe)["power_limit_warn"]

    def judge(gpu: Gpu, in_force: float) -> Iterator[Finding]:
        return _limit(gpu, in_force, least)

    found = each_measured(gpus, measure, "power limit and its default", judge, "power limit not below its default")
    return found + [each for same in models_of(gpus) for each in _unequal_limits(same)]


def _limit(gpu: Gpu, in_force: float, least: float) -> Iterator[Finding]:
    default, as_set = gpu.number("power_default_limit_w") or in_force, gpu.number("power_set_limit_w") or in_force
    if in_force < least * default:
        yield finding(
            State.WARN,
            f"{gpu.name} is limited to {in_force:.0f} W, its default is {default:.0f} W",
            subject=gpu.label,
            observed=f"{in_force:.0f} W",
            expected=f"at least {least * default:.0f} W",
            evidence=(f"set to {as_set:.0f} W",),
            next_step=f"set it back with `nvidia-smi -i {gpu.index} -pl {default:.0f}`, unless it is meant so",
        )
    if in_force < least * as_set:
        yield finding(
            State.WARN,
            f"{gpu.name} was set to {as_set:.0f} W, but {in_force:.0f} W are in force",
            subject=gpu.label,
            observed=f"{in_force:.0f} W",
            expected=f"at least {least * as_set:.0f} W",
            next_step="look for a second limit, of the board or its management controller, and at the power supply",
        )


def _unequal_limits(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    limits = values_of(gpus, "power_limit_w")
    if len(limits) > 1 and max(limits.values()) - min(limits.values()) > SAME_LIMIT_W:
        yield _unequal("power limits", "W", [gpu for gpu in gpus if gpu.index in limits], limits)


def _unequal(what: str, unit: str, gpus: Sequence[Gpu], values: dict[int, float]) -> Finding:
    """Named are those below the highest; which of them is meant so, nobody can see."""
    highest = max(values.values())
    low = [gpu for gpu in gpus if values[gpu.index] < highest]
    return finding(
        State.WARN,
        f"{what} of equal GPUs differ: {min(values.values()):.0f} to {highest:.0f} {unit}",
        subject=labels_of(low),
        observed="; ".join(f"{gpu.name}: {values[gpu.index]:.0f} {unit}" for gpu in gpus),
        expected=f"{highest:.0f} {unit} on all",
        next_step="set the same on all of them: the slowest sets the pace of a training step",
    )


def models_of(gpus: Iterable[Gpu]) -> list[list[Gpu]]:
    """GPUs of one model and MIG state, whatever their power limit."""
    models: dict[tuple[str, bool | None], list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        models[gpu.device.name, gpu.device.mig_enabled].append(gpu)
    return list(models.values())


def clocks(probe: Probe) -> list[Finding]:
    """T4: the highest clocks are the same over one model (30 MHz apart warn, as in gcm), and so are application clocks.

    Under load a mean SM clock more than 30 MHz below that of the peers warns and more than 75 fails, unless a power
    cap explains it; with two GPUs it only warns, as either may be the odd one.
    """
    gpus = gpus_of(probe)
    found = [f for key, what in CLOCK_KEYS for f in not_measured(gpus, key, what)]
    apart = gates_of(probe)["clock_warn"]
    judged = [f for same in models_of(gpus) for f in (*_maxima(same, apart), *_application(same))]
    return [
        *found,
        *judged,
        *(_compared(gpus) if not any(f.state is State.WARN for f in judged) else ()),
        *_under_load(probe, [gpu for gpu in gpus if was_loaded(probe, gpu.index)]),
    ]


def _compared(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """What may be said when no clock stands out; one GPU of a model has nothing to stand out from."""
    sizes = [len(values_of(same, "sm_clock_max_mhz")) for same in models_of(gpus)]
    alike = sum(size for size in sizes if size > 1)
    if alike:
        yield finding(State.PASS, f"highest clocks are the same on {counted(alike, 'GPU')} of one model")
    elif any(sizes):
        yield finding(State.INFO, "no two GPUs of one model, so that no clock can stand out")


def _maxima(gpus: Sequence[Gpu], apart: float) -> Iterator[Finding]:
    for key, what in CLOCK_KEYS[:2]:
        clock = values_of(gpus, key)
        if len(clock) > 1 and max(clock.values()) - min(clock.values()) > apart:
            yield _unequal(f"{what}s", "MHz", [gpu for gpu in gpus if gpu.index in clock], clock)


def _application(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """An application clock below the maximum is the default of many boards; only unequal ones are a fault."""
    clock, most = values_of(gpus, "application_clock_mhz"), values_of(gpus, "sm_clock_max_mhz")
    known = [gpu for gpu in gpus if gpu.index in clock and gpu.index in most]
    low = [gpu for gpu in known if clock[gpu.index] < most[gpu.index]]
    if not low:
        return
    values = {gpu.index: clock[gpu.index] for gpu in known}
    if len(set(values.values())) > 1:
        yield _unequal("application clocks", "MHz", known, values)
    else:
        mhz = next(iter(values.values()))
        text = f"application clock {mhz:.0f} MHz on all {gpus[0].device.name}, below the maximum"
        yield finding(State.INFO, text, observed=f"{mhz:.0f} MHz", expected=f"{max(most.values()):.0f} MHz at most")


def _under_load(probe: Probe, gpus: Sequence[Gpu]) -> list[Finding]:
    mean = {gpu.index: _mean_clock(probe, gpu) for gpu in gpus}
    peers = peers_of(gpus, {index: clock for index, clock in mean.items() if isinstance(clock, float)})

    gates = gates_of(probe).pair("clock")

    def judge(gpu: Gpu, clock: float) -> Iterator[Finding]:
        if peers[gpu.index]:
            yield from _slower(gpu, clock, peers[gpu.index], cap_share(probe, gpu) or 0.0, gates)

    good = "SM clock under load not below that of the peers"
    return each_measured(gpus, lambda gpu: mean[gpu.index], "SM clock under load", judge, good) if gpus else []


def _mean_clock(probe: Probe, gpu: Gpu) -> float | str:
    samples = loaded_samples(probe, gpu.index, "sm_clock_mhz")
    if samples:
        return statistics.fmean(samples)
    missing = gpu.value("sm_clock_mhz") is None
    return gpu.reason("sm_clock_mhz") if missing else why_no_samples(probe, gpu.index, "sm_clock_mhz")


def _slower(
    gpu: Gpu, clock: float, peers: Sequence[float], share: float, gates: tuple[float, float]
) -> Iterator[Finding]:
    """Of two middle peers the slower counts, so that one fast GPU makes no slow ones."""
    usual = statistics.median_low(peers)
    warn, fail = gates
    behind = usual - clock
    if behind <= warn:
        return
    capped = share > CAPPED_SHARE
    fails = behind > fail and len(peers) > 1
    yield finding(
        State.INFO if capped else State.FAIL if fails else State.WARN,
        f"{gpu.name} clocks {behind:.0f} MHz below its peer{'s' * (len(peers) > 1)} under load"
        + (", power-capped" if capped else ""),
        subject=gpu.label,
        observed=f"{clock:.0f} MHz, power-capped {percent(share)} of the time",
        expected=f"at least {usual - warn:.0f} MHz (fails below {usual - fail:.0f})",
        evidence=("with two GPUs, which of them is the odd one needs a baseline",) if len(peers) == 1 else (),
        next_step=None if capped else "look for locked clocks (`nvidia-smi -q -d CLOCK`) and at power and cooling",
    )


CLOCKS = (
    Check("T3", "power limits", power_limits, "ml-engineering: the default of the board, the same on all; 5 %"),
    Check("T4", "clocks", clocks, "gcm: 30 and 75 MHz apart"),
)

"""T: temperature, slowdowns, power limits, clocks and persistence."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of, groups_of, is_absent, not_measured
from gpubalance.checks.probing.clocks import CLOCKS
from gpubalance.checks.probing.loaded import loaded_samples
from gpubalance.checks.probing.measured import each_measured, labels_of, numbers_of, peers_of, values_of
from gpubalance.checks.probing.slowdowns import SLOWDOWNS
from gpubalance.record.gates import gates_of
from gpubalance.record.probe import Probe
from gpubalance.thresholds import plain


def temperature(probe: Probe) -> list[Finding]:
    """T1: how far a GPU is below the temperature at which it slows itself down, and how it stands to its peers.

    Warns below 10 C of that distance, fails at 0; warns when it is more than 10 C hotter than the middle of at least
    two peers. These numbers are our guess; the distance as a measure is gpud's. No absolute temperature is a fault.
    """
    gpus = gpus_of(probe)
    gates = gates_of(probe)
    warn, fail = gates.pair("temperature_margin")
    what, good = "distance to the slowdown temperature", f"at least {plain(warn)} C below slowdown"
    close = each_measured(gpus, margin_of, what, lambda gpu, margin: _close(gpu, margin, warn, fail), good)
    return [*close, *_hotter(probe, gpus, gates["temperature_peer_warn"])]


def margin_of(gpu: Gpu) -> float | str:
    """Degrees that are left, in the GPU's own words, else by its threshold; or why neither is known."""
    margin = gpu.number("temperature_margin_c")
    if margin is not None:
        return margin
    slowdown, now = gpu.number("temperature_slowdown_c"), gpu.number("temperature_c")
    if slowdown is not None and now is not None:
        return slowdown - now
    reasons = [gpu.reason("temperature_margin_c")]
    reasons += [gpu.reason(key) for key in ("temperature_slowdown_c", "temperature_c") if gpu.number(key) is None]
    return next((reason for reason in reasons if not is_absent(reason)), reasons[0])


def _close(gpu: Gpu, margin: float, warn: float, fail: float) -> Iterator[Finding]:
    if margin < warn:
        yield finding(
            State.FAIL if margin <= fail else State.WARN,
            f"{gpu.name} is {margin:.0f} C below its slowdown temperature"
            if margin > 0
            else f"{gpu.name} is at its slowdown temperature",
            subject=gpu.label,
            observed=f"{margin:.0f} C",
            expected=f"at least {plain(warn)} C (fails at {plain(fail)})",
            next_step="check fans, airflow and heat sink of that GPU",
        )


def _hotter(probe: Probe, gpus: Sequence[Gpu], most: float) -> Iterator[Finding]:
    for group in groups_of(gpus):
        degrees = _degrees(probe, group)
        peers = peers_of(group, degrees)
        for gpu in group:
            if len(peers.get(gpu.index, ())) >= 2:
                yield from _against(gpu, degrees[gpu.index], statistics.median_high(peers[gpu.index]), most)


def _degrees(probe: Probe, group: Sequence[Gpu]) -> dict[int, float]:
    """The hottest sample of each under load; at rest where one of the group has none, as only like compares."""
    loaded = {gpu.index: loaded_samples(probe, gpu.index, "temperature_c") for gpu in group}
    if all(loaded.values()):
        return {index: max(samples) for index, samples in loaded.items()}
    return values_of(group, "temperature_c")


def _against(gpu: Gpu, own: float, peers: float, most: float) -> Iterator[Finding]:
    if own - peers > most:
        yield finding(
            State.WARN,
            f"{gpu.name} is {own - peers:.0f} C hotter than its peers",
            subject=gpu.label,
            observed=f"{own:.0f} C",
            expected=f"at most {peers + most:.0f} C, {plain(most)} C above the middle of its peers",
            next_step="check airflow and heat sink of that GPU, and whether somebody else uses it",
        )


def persistence(probe: Probe) -> list[Finding]:
    """T5: without persistence mode the driver lets go of idle GPUs (DCGM): starts are slow, counters and limits lost.

    In a container it is told only; it is the host's to change.
    """
    gpus = gpus_of(probe)
    modes = values_of(gpus, "persistence_mode")
    found = list(not_measured(gpus, "persistence_mode", "persistence mode"))
    off = [gpu for gpu in gpus if modes.get(gpu.index) == 0]
    if off:
        in_container = probe.node is not None and probe.node.container is not None
        found.append(
            finding(
                State.INFO if in_container else State.WARN,
                f"persistence mode is off on {numbers_of(off)}",
                subject=labels_of(off),
                observed="off",
                expected="on",
                next_step="start nvidia-persistenced" + (" on the host" if in_container else ", or `nvidia-smi -pm 1`"),
            )
        )
    elif modes:
        found.append(finding(State.PASS, f"persistence mode is on ({counted(len(modes), 'GPU')})"))
    return found


CHECKS = (
    Check("T1", "temperature", temperature, "10 C to slowdown, 10 C above the peers: our guess; gpud: the distance"),
    *SLOWDOWNS,
    *CLOCKS,
    Check("T5", "persistence mode", persistence, "DCGM: on"),
)

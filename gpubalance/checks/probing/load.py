"""Q: what each GPU did under `--load`."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator

from gpubalance.checks.devices import XID_FAIL, XID_INFO
from gpubalance.checks.finding import Finding, State, counted, percent
from gpubalance.checks.probes import LIMIT, MEASURES, Measure, below_peers, share_of_limit
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of, groups_of, is_absent
from gpubalance.checks.probing.loaded import counter_change, loaded_samples, seconds_between_edges, why_no_change
from gpubalance.record.gates import gates_of
from gpubalance.record.probe import DeviceLoad, Probe
from gpubalance.thresholds import plain

REPLACE = "do not train here: run a memory and ECC test on that GPU, then replace it"


def loads_of(probe: Probe) -> list[tuple[Gpu, DeviceLoad]]:
    """GPUs that were asked to work, and what came of it."""
    if probe.load is None:
        return []
    gpus = {gpu.index: gpu for gpu in gpus_of(probe)}
    return [(gpus[probe.load.devices[result.device]], result) for result in probe.load.results]


def works(probe: Probe) -> list[Finding]:
    """Q1: every GPU allocates, multiplies rightly and ends in time. A GPU that somebody uses is left alone: unknown."""
    found = [outcome for gpu, load in loads_of(probe) for outcome in _works(gpu, load)]
    good = sum(1 for _, load in loads_of(probe) if load.stage == "done" and load.error is None)
    if good and not any(f.state is State.FAIL for f in found):
        found.append(finding(State.PASS, f"{counted(good, 'GPU')} allocated, copied and multiplied rightly"))
    return found


def _works(gpu: Gpu, load: DeviceLoad) -> Iterator[Finding]:
    if load.skipped is not None:
        step = "stop what uses it, or measure all the same with --force" if "in use" in load.skipped else None
        yield finding(State.UNKNOWN, f"{gpu.name} not measured: {load.skipped}", subject=gpu.label, next_step=step)
    elif load.error_kind == "no_cuda":
        yield finding(State.UNKNOWN, f"{gpu.name} not measured: {load.error}", subject=gpu.label)
    elif load.error is not None:
        yield finding(
            State.FAIL,
            f"{gpu.name} failed under load in stage {load.stage}",
            subject=gpu.label,
            evidence=(load.error, f"after {load.seconds:g} s"),
            next_step="see `dmesg | grep -i nvrm` for Xid messages; drain the node",
        )
    elif load.matmul_max_error is not None and load.matmul_max_error > 1:
        yield finding(
            State.FAIL,
            f"{gpu.name} multiplies wrongly: its product is not the CPU's",
            subject=gpu.label,
            observed=f"an error {load.matmul_max_error:.3g} times what rounding allows",
            next_step=REPLACE,
        )


def same_bits(probe: Probe) -> list[Finding]:
    """Q2: the same seeded product has the same bits in every repetition, and on every GPU of one model."""
    found = []
    digests: dict[str, dict[str, list[Gpu]]] = defaultdict(lambda: defaultdict(list))
    for gpu, load in loads_of(probe):
        if load.repeats_differing:
            found.append(
                finding(
                    State.FAIL,
                    f"{gpu.name} gives other bits now and then for the same work",
                    subject=gpu.label,
                    observed=f"{load.repeats_differing} of {load.repeats} repetitions differ",
                    next_step=REPLACE,
                )
            )
        if load.output_digest is not None:
            digests[gpu.device.name][load.output_digest].append(gpu)
    for model, groups in digests.items():
        found += _peers_agree(model, groups)
    return found


def _peers_agree(model: str, groups: dict[str, list[Gpu]]) -> Iterator[Finding]:
    """Named is who differs from more than half of the GPUs; without such a majority nobody is."""
    usual = max(groups.values(), key=len)
    odd = sorted((gpu for group in groups.values() if group is not usual for gpu in group), key=lambda gpu: gpu.index)
    if not odd:
        if len(usual) > 1:
            yield finding(State.PASS, f"{len(usual)} x {model} give the same bits")
        return
    named = len(usual) > len(odd)
    who = ", ".join(str(gpu.index) for gpu in odd)
    yield finding(
        State.FAIL,
        f"GPU {who} gives other bits than its peers" if named else f"GPUs of one model ({model}) give different bits",
        subject="; ".join(gpu.label for gpu in odd) if named else None,
        evidence=("the same seeded product on the same model: silent corruption",),
        next_step=REPLACE,
    )


def speed(probe: Probe) -> list[Finding]:
    """Q3: each GPU against the leave-one-out median of its group and against its own derived limit (METRICS: gates)."""
    measured = {gpu.index: (gpu, load) for gpu, load in loads_of(probe) if load.speed is not None}
    found: list[Finding] = []
    for measure in MEASURES:
        for group in groups_of([gpu for gpu, _ in measured.values()]):
            for gpu in group:
                value = _value(measured[gpu.index][1], measure)
                others = [_value(measured[other.index][1], measure) for other in group if other is not gpu]
                found += _against_peers(probe, gpu, measure, value, others)
                found += _against_limit(probe, gpu, measure, value)
    if measured and not found:
        found.append(finding(State.PASS, f"{counted(len(measured), 'GPU')} as fast as peers and limits let expect"))
    return found


def _value(load: DeviceLoad, measure: Measure) -> float:
    assert load.speed is not None
    return measure.value(load.speed)


def _against_peers(probe: Probe, gpu: Gpu, measure: Measure, value: float, others: list[float]) -> Iterator[Finding]:
    """Of two others the slower counts, so that one fast GPU makes no slow ones; with one, no culprit is named."""
    if not others:
        return
    peer = min(others) if len(others) == 2 else statistics.median(others)
    behind = 1 - value / peer
    warn, fail = gates_of(probe).pair(measure.peer)
    if behind > warn:
        yield finding(
            State.FAIL if behind > fail and len(others) > 1 else State.WARN,
            f"{measure.name} of {gpu.name} is {percent(behind)} below its peers",
            subject=gpu.label,
            observed=f"{value:.1f} {measure.unit}",
            expected=below_peers(measure, peer, warn, fail),
            evidence=("with two GPUs, which of them is the abnormal one needs a baseline",) if len(others) == 1 else (),
            next_step="look at clocks, power and temperature of that GPU, and at what else uses it",
        )


def _against_limit(probe: Probe, gpu: Gpu, measure: Measure, value: float) -> Iterator[Finding]:
    limit = measure.limit(gpu.device, product_clock_mhz(probe, gpu))
    warn, fail = gates_of(probe).pair(LIMIT)
    if limit is None or value / limit >= warn:
        return
    yield finding(
        State.FAIL if value / limit < fail else State.WARN,
        f"{measure.name} of {gpu.name} reaches {percent(value / limit)} of its derived limit",
        subject=gpu.label,
        observed=f"{value:.1f} {measure.unit}",
        expected=share_of_limit(measure, limit, warn, fail),
        next_step="look at clocks, link width and generation under load, and at power limits",
    )


def product_clock_mhz(probe: Probe, gpu: Gpu) -> float | None:
    """Mean SM clock while this GPU multiplied matrices."""
    clocks = loaded_samples(probe, gpu.index, "sm_clock_mhz", "probe gemm")
    return statistics.fmean(clocks) if clocks else None


def errors_under_load(probe: Probe) -> list[Finding]:
    """Q4: Xids that NVML reported and ECC errors that appeared while the GPUs worked."""
    if probe.load is None or not any(load.stage != "start" for _, load in loads_of(probe)):
        return []
    found = [*_xids(probe), *_new_ecc(probe)]
    health = probe.load.samples.health
    if health is not None and health.xid_missing is not None:
        found.append(finding(State.UNKNOWN, f"Xids under load not heard: {health.xid_missing}"))
    return found or [finding(State.PASS, "no Xid and no new ECC error while the GPUs worked")]


def _xids(probe: Probe) -> Iterator[Finding]:
    gpus = {gpu.index: gpu for gpu in gpus_of(probe)}
    for event in probe.load.samples.xids if probe.load is not None else ():
        state = State.FAIL if event.xid in XID_FAIL else State.INFO if event.xid in XID_INFO else State.WARN
        gpu = gpus.get(event.nvml_index) if event.nvml_index is not None else None
        yield finding(
            state,
            f"the driver reported Xid {event.xid} on {gpu.name if gpu else 'a GPU'} under load",
            subject=gpu.label if gpu else None,
            next_step="https://docs.nvidia.com/deploy/xid-errors explains it; drain the node if it is hardware",
        )


def _new_ecc(probe: Probe) -> Iterator[Finding]:
    most = gates_of(probe)["corrected_rate_warn"]
    for gpu, load in loads_of(probe):
        if load.skipped is not None:
            continue
        seconds = max(seconds_between_edges(probe, gpu.index) or 0.0, 1e-3)
        for key, kind in (("ecc_uncorrected", "uncorrected"), ("ecc_corrected", "corrected")):
            errors = counter_change(probe, gpu.index, key)
            if errors is None:
                yield from _ecc_not_read(probe, gpu, key, kind)
            elif errors:
                many = kind == "corrected" and errors / seconds > most
                yield finding(
                    State.FAIL if kind == "uncorrected" else State.WARN if many else State.INFO,
                    f"{gpu.name} had {counted(errors, f'new {kind} ECC error')} under load",
                    subject=gpu.label,
                    observed=f"{errors / seconds:.1f} a second",
                    expected=f"at most {plain(most)} a second" if kind == "corrected" else "0",
                    next_step="drain the node and run a memory test",
                )


def _ecc_not_read(probe: Probe, gpu: Gpu, key: str, kind: str) -> Iterator[Finding]:
    """A GPU without ECC has no such errors; anything else that kept the counter away is not a pass."""
    reason = why_no_change(probe, gpu.index, key)
    if not is_absent(reason):
        yield finding(State.UNKNOWN, f"{kind} ECC errors of {gpu.name} under load not read", evidence=(reason,))


CHECKS = (
    Check("Q1", "each GPU works", works, "a GPU that errs or hangs under seconds of load is broken", required=True),
    Check("Q2", "same bits", same_bits, "same product, same model, same library: the same bits", required=True),
    Check("Q3", "speed under load", speed, "5 and 10 % below peers (host copies 10 and 20 %); 0.65 and 0.50 of limits"),
    Check("Q4", "errors under load", errors_under_load, "any uncorrected; more than 10 corrected a second"),
)

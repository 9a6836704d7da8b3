"""Checks on single devices: wrong results, memory, and the driver's own word that something is broken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpubalance.analysis.facts import Facts
from gpubalance.analysis.rank_evidence import POWER_CAP_BIT
from gpubalance.analysis.sampled import Sampled
from gpubalance.checks.evidence import REASON_NAMES
from gpubalance.checks.finding import INJECTED, Finding, State, percent
from gpubalance.checks.identity import device_label, labels_of, name_of, rank_label
from gpubalance.record.gates import gates_of
from gpubalance.record.run import Run
from gpubalance.record.samples import CounterReading
from gpubalance.record.timings import CollectiveRow, DdpAttempt, RankMemory

XID_FAIL = frozenset({48, 62, 64, 74, 79, 95, 119, 120, 140})
XID_INFO = frozenset({13, 31, 43, 45})
"""Xids that end a node's service, and those that are usually the application's fault. Others warn. After DCGM's and
Azure's lists; newer drivers log many application faults as Xids, so that these alone never fail a node."""

SLOWDOWN_SAMPLES = 3
"""A single sample may be the edge of a load."""
SOFTWARE_THERMAL_BIT = 0x20
LOW_CLOCK_CAPPED = 0.5


def check_results(run: Run, facts: Facts) -> list[Finding]:
    """The same seeded work on the same model of GPU must give the same bits, and collectives the right sums."""
    findings = _same_bits(run)
    wrong = [row for row in run.collectives if row.wrong_elements]
    if run.collectives and not wrong:
        text = "every collective moved the right data at every size"
        findings.append(Finding("collective_data", State.PASS, text, required=True))
    for row in wrong[:1]:
        findings.append(
            Finding(
                "collective_data",
                State.FAIL,
                f"{row.collective} of {row.size_bytes} bytes gave {row.wrong_elements} wrong elements",
                evidence=tuple(_first_wrong(row)),
                next_step="do not train here: a link or a GPU corrupts data in silence",
            )
        )
    return findings + [finding for attempt in run.ddp if attempt.complete for finding in _losses(run, attempt)]


def _first_wrong(row: CollectiveRow) -> Iterator[str]:
    if row.first_wrong_rank is not None:
        yield f"the first is element {row.first_wrong_index} of what rank {row.first_wrong_rank} got, {row.dtype}"


def _losses(run: Run, attempt: DdpAttempt) -> list[Finding]:
    lost = [rank for rank in attempt.ranks if rank.loss is None]
    if len(lost) == len(attempt.ranks):
        # One rank's NaN reaches all in the next all-reduce, and nothing in this model can make one.
        text = "the loss is not a number on any rank: somebody computed or sent garbage"
        step = "run the solo and collectives workloads to see which device or link it is"
        return [Finding("loss", State.FAIL, text, next_step=step, required=True)]
    return [
        Finding(
            "loss",
            State.FAIL,
            f"the loss of rank {rank.rank} is not a number while its peers' is",
            subject=rank_label(run, rank.rank, rank.device),
            next_step="do not train here: run a memory and ECC test on that GPU",
            required=True,
        )
        for rank in lost
    ]


def _same_bits(run: Run) -> list[Finding]:
    if run.plan.backend == "gloo" or len(run.solo) < 2:
        return []
    groups: dict[tuple[str, int], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for solo in run.solo:
        model = run.plan.devices[solo.device].name
        groups[model, solo.samples_per_step][solo.output_digest].append(solo.rank)
    findings = []
    for (model, _), digests in groups.items():
        ranks = sorted(rank for group in digests.values() for rank in group)
        if len(ranks) < 2:
            continue
        if len(digests) == 1:
            findings.append(
                Finding("same_bits", State.PASS, f"{len(ranks)} x {model} give the same bits", required=True)
            )
        else:
            findings.append(_different(run, model, digests))
    return findings


def _different(run: Run, model: str, digests: dict[str, list[int]]) -> Finding:
    """Named is who differs from more than half of the devices; without such a majority nobody is."""
    usual = max(digests.values(), key=len)
    odd = sorted(rank for ranks in digests.values() if ranks is not usual for rank in ranks)
    named = len(usual) > len(odd)
    numbers = ", ".join(str(rank) for rank in odd)
    who = (f"rank {numbers} computes" if len(odd) == 1 else f"ranks {numbers} compute") if named else "ranks compute"
    device = {solo.rank: solo.device for solo in run.solo}
    return Finding(
        "same_bits",
        State.FAIL,
        f"{who} different bits from the same seeded work on the same model ({model}): silent corruption",
        subject="; ".join(rank_label(run, rank, device[rank]) for rank in odd) if named else None,
        next_step="do not train here: run a memory and ECC test on that GPU, then replace it",
        required=True,
    )


def check_memory(run: Run, facts: Facts) -> list[Finding]:
    """Memory skew of the ranks' own processes, and contexts that leaked onto a neighbour's device."""
    memory = facts.memory
    if memory.skew is None or memory.fullest is None or len(memory.devices) < 2:
        return []
    findings, most = [_skew(run, facts)], gates_of(run)["leaked_context_warn"]
    for device in memory.devices:
        if device.other_ranks and device.other_ranks > most:
            text = f"other ranks hold {device.other_ranks / 2**20:.0f} MiB on {name_of(run, device.device)}"
            step = "bind the device before any CUDA call"
            findings.append(
                Finding(
                    "leaked_context",
                    State.WARN,
                    text,
                    subject=labels_of(run, device.device),
                    expected=f"at most {most / 2**20:g} MiB",
                    next_step=step,
                )
            )
    return findings


def _skew(run: Run, facts: Facts) -> Finding:
    skew, fullest = facts.memory.skew or 0.0, facts.memory.fullest or 0.0
    gates = gates_of(run)
    (warn, fail), (full_warn, full_fail) = gates.pair("memory_skew"), gates.pair("memory_full")
    state = State.PASS
    if skew > fail and fullest > full_fail:
        state = State.FAIL
    elif skew > warn and fullest > full_warn:
        state = State.WARN
    if state is State.PASS:
        return Finding("memory_skew", state, f"memory is even: skew {percent(skew)}, fullest device {percent(fullest)}")
    lost = (facts.memory.head_room_lost_bytes or 0) / 2**30
    return Finding(
        "memory_skew",
        state,
        f"memory is uneven: the fullest device is {percent(fullest)} full, the emptiest holds {percent(skew)} less",
        subject=_fullest(run, facts),
        observed=f"skew {percent(skew)}",
        expected=f"at most {percent(warn)} when more than {percent(full_warn)} full "
        f"(fails above {percent(fail)} when more than {percent(full_fail)} full)",
        evidence=(f"head-room lost on the other devices: {lost:.1f} GiB",),
        next_step=INJECTED if run.injected else "look at what else that rank keeps",
    )


def _fullest(run: Run, facts: Facts) -> str:
    """The rank whose own process takes the largest share of its device."""
    own = {device.device: device.own for device in facts.memory.devices}

    def share(memory: RankMemory) -> float:
        held = own[memory.device]
        return (memory.peak_reserved_bytes if held is None else held) / memory.capacity_bytes

    fullest = max((memory for memory in run.memory if memory.capacity_bytes > 0), key=share)
    return rank_label(run, fullest.rank, fullest.device)


def check_hardware(run: Run, facts: Facts) -> list[Finding]:
    """Xids, new ECC errors, link errors, and slowdowns that are never normal: changes during our own load only."""
    return [*_xids(run), *_counters(run, facts), *_slowdowns(run, facts)]


def _xids(run: Run) -> list[Finding]:
    devices = run.plan.devices
    labels: dict[int | None, str] = {d.nvml_index: device_label(d) for d in devices if d.nvml_index is not None}
    findings = []
    for event in run.samples.xids:
        where = "a GPU" if event.nvml_index is None else f"GPU {event.nvml_index}"
        state = State.FAIL if event.xid in XID_FAIL else State.INFO if event.xid in XID_INFO else State.WARN
        findings.append(
            Finding(
                "xid",
                state,
                f"the driver reported Xid {event.xid} on {where}",
                subject=labels.get(event.nvml_index),
                evidence=(f"at {event.t_s:.1f} s of the run",),
                next_step="https://docs.nvidia.com/deploy/xid-errors explains it; drain the node if it is hardware",
            )
        )
    return findings


def _counters(run: Run, facts: Facts) -> list[Finding]:
    rules = (
        ("ecc_uncorrected", State.FAIL, "uncorrectable ECC errors", "replace the GPU if it happens again"),
        ("nvlink_replays", State.WARN, "NVLink replays", "reseat or replace the link"),
        ("nvlink_recoveries", State.WARN, "NVLink recoveries", "reseat or replace the link"),
        ("nvlink_crc_errors", State.WARN, "NVLink CRC errors", "reseat or replace the link"),
    )
    readings: dict[int, list[CounterReading]] = defaultdict(list)
    for reading in run.samples.counters:
        readings[reading.device].append(reading)
    findings = []
    for index in range(len(run.plan.devices)):
        for key, state, name, step in rules:
            grown = _growth(readings[index], key)
            if grown > 0:
                text = f"{grown} new {name} on {name_of(run, index)} during the run"
                evidence = _slow_link(facts) if key.startswith("nvlink_") else ()
                findings.append(Finding(key, state, text, labels_of(run, index), evidence=evidence, next_step=step))
    return findings


def _slow_link(facts: Facts) -> tuple[str, ...]:
    """A slow link makes every rank's transfer longer and nobody's compute: that is said where a link retries."""
    first = facts.first
    if first is None or len(first.device_of_rank) < 2 or first.stragglers.state != "ok":
        return ()
    transfer, step = first.balance.transfer_ms, first.balance.step_ms
    return (f"no rank is slow; moving gradients takes all of them {transfer:.2f} ms beside a step of {step:.2f} ms",)


def _growth(readings: Sequence[CounterReading], key: str) -> int:
    """Of one device's counter, from the first reading to the last."""
    known = [value for reading in readings if (value := reading.values.get(key)) is not None]
    return int(known[-1] - known[0]) if len(known) > 1 else 0


def _slowdowns(run: Run, facts: Facts) -> list[Finding]:
    """Thermal and power slowdowns of the hardware, by their share of the loaded samples. Their gates are ours, to be
    calibrated on sick GPUs.
    """
    return [
        finding
        for sampled in facts.sampled
        if sampled is not None
        for finding in (*_reasons(run, sampled), *_low_clock(run, facts, sampled))
    ]


def _reasons(run: Run, sampled: Sampled) -> list[Finding]:
    gates = gates_of(run)
    findings = []
    for bit, share in sampled.reasons_share.items():
        if bit not in REASON_NAMES:
            continue
        warn, fail = gates.pair("thermal_slowdown" if bit == SOFTWARE_THERMAL_BIT else "hardware_slowdown")
        if share <= warn:
            continue
        enough = share * sampled.samples >= SLOWDOWN_SAMPLES
        findings.append(
            Finding(
                "slowdown",
                State.FAIL if share > fail and enough else State.WARN,
                f"{name_of(run, sampled.device)}: {REASON_NAMES[bit]} in {percent(share)} of the loaded samples",
                subject=labels_of(run, sampled.device),
                expected=f"at most {percent(warn)} (fails above {percent(fail)})",
                next_step="check power and cooling of that GPU",
            )
        )
    return findings


def _low_clock(run: Run, facts: Facts, sampled: Sampled) -> list[Finding]:
    """A clock far below its maximum while multiplying matrices, and no power cap that would explain it."""
    device = run.plan.devices[sampled.device]
    seen = facts.gemm_clock_mhz[sampled.device] if sampled.device < len(facts.gemm_clock_mhz) else None
    highest = device.readings.get("sm_clock_max_mhz")
    capped = sampled.reasons_share.get(POWER_CAP_BIT, 0.0) > LOW_CLOCK_CAPPED
    least = gates_of(run)["low_clock_warn"]
    if seen is None or not isinstance(highest, int | float) or capped or seen >= least * highest:
        return []
    return [
        Finding(
            "low_clock",
            State.WARN,
            f"{name_of(run, sampled.device)}: clock {seen:.0f} of {highest:.0f} MHz at full load, without a power cap",
            subject=labels_of(run, sampled.device),
            expected=f"at least {percent(least)} of its highest clock",
            next_step="look for locked or application clocks: nvidia-smi -q -d CLOCK,PERFORMANCE",
        )
    ]

"""Checks on what the links between GPUs carry: against what they let expect, and never without saying why.

all_gather and reduce_scatter show the health of the wires, all_reduce what training gets. Gates: B200, H200 and A100
with eight GPUs and a switch are seen at 0.93 to 0.99 of NCCL's own rates (ml-engineering; Azure's gates are 0.88 to
0.95), pairs and bridges at 0.80 to 0.89. An all_gather over two H200s reaches 0.72 to 0.82 from 1 GiB on, so that the
gates of pairs for it are ours, as is that of PCIe, where the way decides more than the link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpubalance.analysis.bandwidth import JUDGED, Bandwidth, Expectation, Measured, bandwidth_of
from gpubalance.analysis.facts import Facts
from gpubalance.checks.finding import Finding, State, percent
from gpubalance.message_sizes import size_text
from gpubalance.record.collectives import nearly_bytes
from gpubalance.record.gates import gates_of
from gpubalance.record.run import Run
from gpubalance.record.timings import CollectiveRow, Jitter, Transport

JITTER_BYTES = 2**28
"""Smaller messages differ by what the host does."""

STEERING = (
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_ALGO", "NCCL_PROTO",
    "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_NTHREADS", "NCCL_BUFFSIZE", "NCCL_CUMEM_ENABLE",
)  # fmt: skip
"""Variables that explain a small bandwidth."""


def check_bandwidth(run: Run, facts: Facts) -> list[Finding]:
    """Bus bandwidth of the largest messages, the way that data takes, and how the operations differ from each other."""
    return [*judge_bandwidth(run, facts.bandwidth), *_ways(run, facts.bandwidth), *_jitter(run)]


def needs_nccl_log(run: Run) -> bool:
    """Whether a bandwidth is below its gates, so that the algorithm must be known before anybody is blamed."""
    return any(finding.state in (State.WARN, State.FAIL) for finding in judge_bandwidth(run, bandwidth_of(run)))


def judge_bandwidth(run: Run, bandwidth: Bandwidth) -> list[Finding]:
    """A finding for each collective that is judged; those that are not are told together, for each reason."""
    shown = [measured for name in JUDGED for measured in bandwidth.largest if measured.collective == name]
    findings = [_judged(run, each, each.expected) for each in shown if each.is_large_enough and each.expected]
    left: dict[str, list[Measured]] = {}
    for each in shown:
        if not (each.is_large_enough and each.expected):
            small = f"messages below {size_text(each.judged_from_bytes)} do not fill the links"
            left.setdefault(each.why_not or small, []).append(each)
    return findings + [_not_judged(reason, group) for reason, group in left.items()]


def _not_judged(reason: str, group: Sequence[Measured]) -> Finding:
    return Finding("busbw", State.INFO, f"{', '.join(_reached(each) for each in group)}; not judged: {reason}")


def _reached(measured: Measured) -> str:
    speed = f"{measured.bus_bandwidth_gb_per_s:.1f} GB/s busbw"
    return f"{measured.collective} reaches {speed} at {size_text(measured.size_bytes)}"


def _judged(run: Run, measured: Measured, expected: Expectation) -> Finding:
    share = measured.bus_bandwidth_gb_per_s / expected.gb_per_s
    gates = gates_of(run)
    warn = gates[f"{expected.gates}_warn"]
    fail = gates[f"{expected.gates}_fail"] if expected.gates != "busbw_nvls" else None
    below_fail = fail is not None and share < fail
    state = State.FAIL if below_fail and expected.can_fail else State.WARN if share < warn else State.PASS
    limit = f"at least {percent(warn)} of it" + (f" (fails below {percent(fail)})" if fail is not None else "")
    return Finding(
        "busbw",
        state,
        f"{_reached(measured)}, {percent(share)} of the {expected.gb_per_s:.0f} GB/s expected",
        observed=f"{measured.bus_bandwidth_gb_per_s:.1f} GB/s",
        expected=f"{expected.gb_per_s:.0f} GB/s because {expected.because}; {limit}",
        evidence=tuple(_evidence(run, measured, expected)),
        next_step=None if state is State.PASS else _next_step(run),
    )


def _evidence(run: Run, measured: Measured, expected: Expectation) -> Iterator[str]:
    named = next((row for row in run.nccl.choices if (row.collective, row.size_bytes)
                  == (measured.collective, measured.size_bytes)), None) if run.nccl else None  # fmt: skip
    if named is not None:
        channels = f" on {named.channels} channels" if named.channels else ""
        yield f"NCCL's log: {named.algorithm}, {named.protocol}{channels}"
    elif expected.algorithm == "NVLS":
        yield "more than a ring can do, so that it must be NVLS; NCCL's log was not read"
    spec = expected.spec_gb_per_s
    if spec is not None and measured.bus_bandwidth_gb_per_s > spec:
        yield f"more than the {spec:.0f} GB/s that the links carry is normal: NVLS adds up inside the switch"
    if measured.collective == "all_reduce":
        yield from _few(run, measured, expected)
    if not expected.can_fail and expected.algorithm != "NVLS":
        yield "too little is known about the way that data takes, so that this never fails"
    yield from (f"{name}={run.node.environment[name]} is set" for name in STEERING if name in run.node.environment)


def _few(run: Run, measured: Measured, expected: Expectation) -> Iterator[str]:
    """Fewer GPUs than the node has: another algorithm, and no fault."""
    total = sum(device.kind == "cuda" for device in run.node.devices)
    off = run.node.environment.get("NCCL_NVLS_ENABLE") == "0"
    if measured.ranks < total and total > 4 and expected.gates.startswith("busbw") and _has_nvls(run) and not off:
        yield (
            f"{measured.ranks} of {total} GPUs take part: NCCL reduces by rings on few GPUs and by NVLS on more, which "
            "reads higher; neither is a fault"
        )


def _has_nvls(run: Run) -> bool:
    majors = [device.readings.get("compute_capability_major") for device in run.plan.devices]
    return all(isinstance(major, int) and major >= 9 for major in majors)


def _next_step(run: Run) -> str:
    if run.node.environment.get("NCCL_P2P_DISABLE", "0") not in ("", "0"):
        return "unset NCCL_P2P_DISABLE unless peer-to-peer is known to be broken here"
    if run.nccl is None:
        return "see which way NCCL takes: gpubalance bench --workload collectives reads its log"
    return "gpubalance probe looks at links and fabric; compare with a node of this model that is known to be good"


def _ways(run: Run, bandwidth: Bandwidth) -> list[Finding]:
    """GPUs that NVLink joins and whose data NCCL still sends another way."""
    if run.nccl is None or bandwidth.fabric.kind not in ("switched", "direct", "unknown"):
        return []
    around = [way for way in run.nccl.transports if not way.via.startswith("P2P")]
    if not around:
        return []
    first = around[0]
    pair = f"rank {first.sender} to rank {first.receiver}"
    return [
        Finding(
            "nccl_transport",
            State.WARN,
            f"NCCL sends data from {pair} by {first.via} although NVLink joins them",
            evidence=tuple(_way_lines(run, around)),
            next_step="see NCCL_P2P_DISABLE and NCCL_P2P_LEVEL, and that all ranks share one container and /dev/shm",
        )
    ]


def _way_lines(run: Run, around: list[Transport]) -> Iterator[str]:
    yield f"{len({(way.sender, way.receiver) for way in around})} of the pairs that NCCL connected"
    yield from (f"{name}={run.node.environment[name]} is set" for name in STEERING if name in run.node.environment)


def _jitter(run: Run) -> list[Finding]:
    """`--jitter`: operations of one size that differ from each other by more than they should. The gate is a guess."""
    gate = gates_of(run)["jitter_warn"]
    return [
        _uneven(row, row.jitter, gate)
        for row in run.collectives
        if row.jitter is not None and row.size_bytes > nearly_bytes(JITTER_BYTES, row.ranks) and row.jitter.cv > gate
    ]


def _uneven(row: CollectiveRow, jitter: Jitter, gate: float) -> Finding:
    what = f"{row.collective} of {size_text(row.size_bytes)}"
    return Finding(
        "jitter",
        State.WARN,
        f"{what} is uneven: single operations differ by {percent(jitter.cv)}",
        observed=f"p50 {jitter.p50_us:.1f} us, p99 {jitter.p99_us:.1f}, largest {jitter.max_us:.1f}",
        expected=f"at most {percent(gate)} (standard deviation over mean)",
        next_step="look at clocks and at what else uses links and host; repeat with --sizes at this size alone",
    )

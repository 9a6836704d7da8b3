"""Verdicts on bandwidth: with a reason always, a failure only where enough is known."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.bandwidth import needs_nccl_log
from gpubalance.checks.finding import Finding, State
from gpubalance.checks.verdict import judge
from gpubalance.record.node import Device
from gpubalance.record.run import Run
from gpubalance.record.timings import AlgorithmChoice, Jitter, NcclFacts, Transport
from tests.analysis.test_bandwidth import GIB, bridged, joined, run_on
from tests.reports.helpers import kept, row


def found(run: Run, check: str = "busbw") -> list[Finding]:
    return [finding for finding in judge(run).findings if finding.id == check]


def one(run: Run, check: str = "busbw") -> Finding:
    (finding,) = found(run, check)
    return finding


def run_with(busbw: float, devices: list[Device], size: int = GIB, name: str = "all_reduce", **values: Any) -> Run:
    shown = row(collective=name, size_bytes=size, bus_bandwidth_gb_per_s=busbw, ranks=len(devices))
    return run_on(devices, collectives=[shown], **values)


def log(algorithm: str, size: int = GIB, name: Any = "all_reduce") -> NcclFacts:
    choice = AlgorithmChoice(collective=name, size_bytes=size, algorithm=algorithm, protocol="Simple", channels=24)
    return NcclFacts(choices=[choice])


A100 = joined(8, nvlinks_active=12, compute_capability_major=8)
B200 = joined(8, compute_capability_major=10)
NVL = joined(2, nvlinks_active=12)


@pytest.mark.parametrize(
    ("run", "state"),
    [
        (run_with(234.9, A100), "pass"),
        (run_with(228.0, A100), "pass"),
        (run_with(215.0, A100), "warn"),  # 89.6 %
        (run_with(205.0, A100), "fail"),  # 85.4 %
        (run_with(367.6, joined(8)), "pass"),
        (run_with(361.4, joined(8), 4 * GIB, "all_gather"), "pass"),
        (run_with(300.0, joined(8), 4 * GIB, "reduce_scatter"), "fail"),
        (run_with(482.3, joined(8)), "pass"),
        (run_with(367.6, joined(8), nccl=log("Ring")), "pass"),
        (run_with(367.6, joined(8), nccl=log("NVLS")), "warn"),  # 75 % of NVLS: never a failure
        (run_with(100.0, joined(8), nccl=log("NVLS")), "warn"),
        (run_with(838.0, B200, 8 * GIB), "pass"),
        (run_with(673.0, B200[:4], 8 * GIB), "pass"),
        (run_with(682.0, B200, 8 * GIB), "pass"),
        (run_with(208.0, NVL), "pass"),
        (run_with(193.0, joined(2, nvlinks_active=12, compute_capability_major=8)), "pass"),
        (run_with(185.0, NVL), "warn"),  # 74.8 %
        (run_with(120.0, NVL), "fail"),
        (run_with(45.0, joined(8, nvlinks_active=0)), "pass"),
        (run_with(15.0, joined(8, nvlinks_active=0)), "warn"),  # 31 % of PCIe 5
        (run_with(5.0, joined(8, nvlinks_active=0)), "fail"),
    ],
)
def test_published_and_broken_numbers(run: Run, state: str) -> None:
    finding = one(run)
    assert finding.state.value == state
    assert finding.expected is not None
    assert "GB/s because " in finding.expected
    assert (finding.next_step is None) == (state == "pass")


def test_the_kept_run_of_two_h200s_passes_with_all_three() -> None:
    findings = found(kept("h200x2-healthy"))
    assert [(finding.state, finding.message.split()[0]) for finding in findings] == [
        (State.PASS, "all_reduce"), (State.PASS, "all_gather"), (State.PASS, "reduce_scatter")
    ]  # fmt: skip


def test_a_pass_says_against_what() -> None:
    finding = one(run_with(329.0, joined(2)))
    assert finding.message == "all_reduce reaches 329.0 GB/s busbw at 1 GiB, 88.7 % of the 371 GB/s expected"
    assert finding.expected == ("371 GB/s because 18 links x 20.6 GB/s, ring; at least 78 % of it (fails below 70 %)")


def test_more_than_the_links_carry_is_explained() -> None:
    text = " ".join(one(run_with(482.3, joined(8))).evidence)
    assert "more than the 450 GB/s that the links carry is normal: NVLS" in text
    assert "NCCL's log was not read" in text
    assert one(run_with(482.3, joined(8), nccl=log("NVLS"))).evidence[0] == "NCCL's log: NVLS, Simple on 24 channels"


def test_fewer_gpus_than_the_node_has_are_explained() -> None:
    eight = joined(8)
    few = run_on(eight[:4], eight, collectives=[row(ranks=4, bus_bandwidth_gb_per_s=363.0)])
    assert one(few).state is State.PASS
    assert "4 of 8 GPUs take part" in " ".join(one(few).evidence)
    assert "take part" not in " ".join(one(run_with(363.0, eight)).evidence)


def test_what_is_too_small_or_unknown_is_said_and_not_judged() -> None:
    small = one(run_with(100.0, joined(8), 64 * 2**20))
    assert (small.state, needs_nccl_log(run_with(100.0, joined(8), 64 * 2**20))) == (State.INFO, False)
    assert small.message.endswith("not judged: messages below 1 GiB do not fill the links")
    early = one(run_with(741.0, B200, 4 * GIB))
    assert early.message.endswith("not judged: messages below 8 GiB do not fill the links")
    unknown = one(run_with(20.0, bridged()))
    assert unknown.state is State.INFO
    assert "so that the slowest hop decides" in unknown.message


@pytest.mark.parametrize(("ranks", "size"), [(8, 4 * GIB), (7, 4 * GIB - 64), (6, 4 * GIB - 64), (3, 4 * GIB - 16)])
def test_a_message_that_was_rounded_down_is_judged(ranks: int, size: int) -> None:
    """4294967296 bytes are 4294967280 on three ranks of whole 16 bytes; 100 of 371 GB/s fail."""
    assert one(run_with(100.0, joined(ranks), size, "all_gather")).state is State.FAIL


def test_what_is_not_judged_is_told_beside_what_is() -> None:
    devices = joined(8)
    rows = [row(collective=name, size_bytes=GIB, bus_bandwidth_gb_per_s=100.0, ranks=8)
            for name in ("all_reduce", "all_gather", "reduce_scatter")]  # fmt: skip
    findings = found(run_on(devices, collectives=rows))
    assert [finding.state for finding in findings] == [State.FAIL, State.INFO]
    assert findings[1].message == (
        "all_gather reaches 100.0 GB/s busbw at 1 GiB, reduce_scatter reaches 100.0 GB/s busbw at 1 GiB; "
        "not judged: messages below 4 GiB do not fill the links"
    )


def test_links_of_which_nobody_knows_where_they_go_never_fail() -> None:
    blind = [device.model_copy(update={"peers": []}) for device in joined(8)]
    finding = one(run_with(20.0, blind))
    assert finding.state is State.WARN
    assert any("too little is known" in text for text in finding.evidence)


def test_a_variable_that_explains_it_is_named() -> None:
    run = run_with(20.0, joined(2))
    off = run.model_copy(update={"node": run.node.model_copy(update={"environment": {"NCCL_P2P_DISABLE": "1"}})})
    finding = one(off)
    assert finding.state is State.FAIL
    assert "NCCL_P2P_DISABLE=1 is set" in finding.evidence
    assert finding.next_step == "unset NCCL_P2P_DISABLE unless peer-to-peer is known to be broken here"
    assert needs_nccl_log(off)


def test_data_that_goes_around_nvlink_is_seen_in_the_log() -> None:
    ways = [Transport(sender=0, receiver=1, via="SHM/direct/direct", channels=2)]
    run = run_with(329.0, joined(2), nccl=NcclFacts(transports=ways))
    finding = one(run, "nccl_transport")
    assert finding.state is State.WARN
    assert finding.message == "NCCL sends data from rank 0 to rank 1 by SHM/direct/direct although NVLink joins them"
    direct = NcclFacts(transports=[Transport(sender=0, receiver=1, via="P2P/CUMEM", channels=2)])
    assert found(run_with(329.0, joined(2), nccl=direct), "nccl_transport") == []
    without = joined(2, nvlinks_active=0)
    assert found(run_with(20.0, without, nccl=NcclFacts(transports=ways)), "nccl_transport") == []


@pytest.mark.parametrize(("size", "cv", "count"), [(2**28, 0.051, 1), (2**28, 0.049, 0), (2**27, 0.5, 0)])
def test_operations_that_differ_from_each_other_warn(size: int, cv: float, count: int) -> None:
    jitter = Jitter(operations=20, p50_us=100, p99_us=150, max_us=160, cv=cv)
    run = run_on(joined(2), collectives=[row(size_bytes=size, jitter=jitter)])
    assert len(found(run, "jitter")) == count

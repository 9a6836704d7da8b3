"""What links let expect, against numbers that others published."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.analysis.bandwidth import (
    Expectation,
    Fabric,
    algorithm_of,
    bandwidth_of,
    expect,
    fabric_of,
    judged_from,
)
from gpubalance.record.node import Device
from gpubalance.record.run import Run
from gpubalance.record.timings import AlgorithmChoice, NcclFacts
from gpubalance.testing.link_runs import joined_gpus, make_peer
from gpubalance.testing.runs import make_gpu, make_node, make_run
from tests.reports.helpers import row

GIB = 2**30
V100, A100, H200, B200 = (
    Fabric("switched", links, capability) for links, capability in ((6, 70), (12, 80), (18, 90), (18, 100))
)
A100_PAIR, H100_NVL, A5000_PAIR = Fabric("direct", 12, 80), Fabric("direct", 12, 90), Fabric("direct", 4, 86)


def expected(fabric: Fabric, collective: str, ranks: int, algorithm: str | None = None, seen: float = 0) -> Expectation:
    found = expect(fabric, collective, ranks, algorithm, seen)
    assert isinstance(found, Expectation), found
    return found


@pytest.mark.parametrize(
    ("fabric", "ring", "spec"),
    [(V100, 120, 150), (A100, 240, 300), (H200, 370.8, 450), (B200, 721.8, 900), (H100_NVL, 247.2, 300),
     (A5000_PAIR, 48, 56), (Fabric("switched", 18, 103), 721.8, 900)],
)  # fmt: skip
def test_a_ring_is_links_times_the_rate_of_nccl(fabric: Fabric, ring: float, spec: float) -> None:
    found = expected(fabric, "all_gather", 8)
    assert (found.gb_per_s, found.spec_gb_per_s) == pytest.approx((ring, spec))
    assert found.algorithm == "Ring"


# collective, GPUs, published busbw in GB/s, algorithm, share of the expectation
PUBLISHED = {
    # ml-engineering: A100 SXM, H200 and B200 with 8 GPUs
    "A100 16 GiB": (A100, "all_reduce", 8, 234.9, None, 0.979),
    "A100 1 GiB": (A100, "all_reduce", 8, 229, None, 0.954),
    "H200 ring": (H200, "all_reduce", 8, 367.6, "Ring", 0.991),
    "H200 all_gather": (H200, "all_gather", 8, 361.4, None, 0.975),
    "H200 reduce_scatter": (H200, "reduce_scatter", 8, 362.9, None, 0.979),
    "H200 NVLS": (H200, "all_reduce", 8, 482.3, "NVLS", 0.983),
    "H200 NVLS, no log": (H200, "all_reduce", 8, 482.3, None, 0.983),
    "H200 NVLS 1 GiB": (H200, "all_reduce", 8, 463.6, "NVLS", 0.945),
    "H200 7 GPUs": (H200, "all_reduce", 7, 460, "NVLS", 0.973),
    "H200 6 GPUs": (H200, "all_reduce", 6, 436, "NVLS", 0.968),
    "H200 5 GPUs": (H200, "all_reduce", 5, 414, "NVLS", 0.985),
    "H200 4 GPUs": (H200, "all_reduce", 4, 363, "Ring", 0.979),
    "B200 NVLS": (B200, "all_reduce", 8, 838, "NVLS", 1.009),
    "B200 7 GPUs": (B200, "all_reduce", 7, 811, "NVLS", 1.012),
    "B200 6 GPUs": (B200, "all_reduce", 6, 778, "NVLS", 1.020),
    "B200 ring": (B200, "all_reduce", 8, 682, "Ring", 0.945),
    "B200 4 GPUs": (B200, "all_reduce", 4, 673, "Ring", 0.932),
    # Azure's gates
    "A100 v4 gate": (A100, "all_reduce", 8, 228, None, 0.950),
    "H100 v5 gate": (H200, "all_reduce", 8, 460, "NVLS", 0.938),
    "NDv2 gate": (V100, "all_reduce", 8, 110, None, 0.917),
    "NC48 A100 pair gate": (A100_PAIR, "all_reduce", 2, 193, None, 0.804),
    "H100 NVL pair gate": (H100_NVL, "all_reduce", 2, 208, None, 0.841),
    "A100 NV12 pair": (A100_PAIR, "all_reduce", 2, 208, None, 0.867),  # nccl-tests issue 178
    "GB200 NVL4": (Fabric("direct", 18, 100), "all_reduce", 4, 679.6, "Ring", 0.942),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_numbers_are_the_share_that_was_worked_out_by_hand(name: str) -> None:
    fabric, collective, ranks, busbw, algorithm, share = PUBLISHED[name]
    found = expected(fabric, collective, ranks, algorithm, busbw)
    assert busbw / found.gb_per_s == pytest.approx(share, abs=0.001)


def test_nvls_gives_more_than_the_links_carry() -> None:
    found = expected(H200, "all_reduce", 8, "NVLS")
    assert found.gb_per_s > (found.spec_gb_per_s or 0)
    assert found.because == "18 links x 20.6 GB/s x 0.85 x 1.56, NVLS on 8 GPUs"
    assert (found.gates, found.from_log, found.can_fail) == ("busbw_nvls", True, False)
    assert expected(H200, "all_reduce", 8, "NVLSTree").algorithm == "NVLS"


@pytest.mark.parametrize(
    ("fabric", "collective", "ranks", "seen"),
    [
        (H200, "all_reduce", 8, 389),  # not beyond what a ring can do
        (H200, "all_gather", 8, 480),  # not an all_reduce
        (A100, "all_reduce", 8, 480),  # no NVLS before Hopper
        (H200, "all_reduce", 2, 480),  # two GPUs
        (H100_NVL, "all_reduce", 4, 480),  # no switch
    ],
)
def test_without_a_log_nvls_is_supposed_only_where_it_can_be(
    fabric: Fabric, collective: str, ranks: int, seen: float
) -> None:
    assert expected(fabric, collective, ranks, None, seen).algorithm == "Ring"


@pytest.mark.parametrize(
    ("fabric", "collective", "ranks", "gates"),
    [
        (H200, "all_reduce", 8, "busbw"), (H200, "all_gather", 4, "busbw"), (H200, "all_reduce", 2, "busbw_direct"),
        (H100_NVL, "all_reduce", 2, "busbw_direct"), (Fabric("direct", 12, 80), "all_reduce", 4, "busbw_direct"),
        (H200, "all_gather", 2, "busbw_pair_split"), (Fabric("unknown", 18, 90), "all_reduce", 8, "busbw_direct"),
    ],
)  # fmt: skip
def test_pairs_and_bridges_have_a_band_of_their_own(fabric: Fabric, collective: str, ranks: int, gates: str) -> None:
    assert expected(fabric, collective, ranks).gates == gates


@pytest.mark.parametrize(
    ("kind", "algorithm", "can_fail"),
    [("switched", None, True), ("switched", "Ring", True), ("switched", "Tree", False), ("unknown", None, False)],
)
def test_only_what_is_known_can_fail(kind: str, algorithm: str | None, can_fail: bool) -> None:
    assert expected(Fabric(kind, 18, 90), "all_reduce", 8, algorithm).can_fail is can_fail


@pytest.mark.parametrize(
    ("fabric", "reason"),
    [
        (Fabric("none", 0, None), "no GPU"),
        (Fabric("mixed", 12, 80), "not all GPUs reach each other over NVLink"),
        (Fabric("direct", 4, 75), "NCCL's rate for links of these GPUs is not known"),
        (Fabric("direct", 4, None), "NCCL's rate for links of these GPUs is not known"),
        (Fabric("pcie", 0, 89), "generation and width of their PCIe links are not known"),
    ],
)
def test_where_nothing_can_be_expected_there_is_a_reason(fabric: Fabric, reason: str) -> None:
    found = expect(fabric, "all_reduce", 8)
    assert isinstance(found, str)
    assert found.startswith(reason)


def joined(count: int, **readings: Any) -> list[Device]:
    """GPUs that all reach each other over NVLink."""
    return joined_gpus(count, **readings)


def bridged() -> list[Device]:
    """Four GPUs, 0-1 and 2-3 over bridges."""
    return [
        make_gpu(i, nvlinks_active=12).model_copy(
            update={"peers": [make_peer(j, nvlink=j == i ^ 1) for j in range(4) if j != i]}
        )
        for i in range(4)
    ]


def run_on(devices: list[Device], node: list[Device] | None = None, **values: Any) -> Run:
    run = make_run([], ranks=len(devices), node=make_node(node or devices), **values)
    return run.model_copy(update={"plan": run.plan.model_copy(update={"devices": devices})})


def test_eight_gpus_that_all_reach_each_other_have_a_switch() -> None:
    eight = joined(8)
    assert fabric_of(run_on(eight)) == Fabric("switched", 18, 90, 48.0, "PCIe 5 x16")
    assert fabric_of(run_on(eight[:2], eight)).kind == "switched"
    assert fabric_of(run_on(eight[:4], eight)).kind == "switched"


def test_four_gpus_that_all_reach_each_other_may_have_none() -> None:
    assert fabric_of(run_on(joined(4))).kind == "direct"
    assert fabric_of(run_on(joined(2))).kind == "direct"


def test_bridged_pairs_among_four_are_mixed_and_one_of_them_is_direct() -> None:
    four = bridged()
    assert fabric_of(run_on(four)).kind == "mixed"
    assert fabric_of(run_on(four[:2], four)).kind == "direct"
    assert fabric_of(run_on([four[0], four[2]], four)).kind == "pcie"  # each has links, to somebody else


def test_a_gpu_whose_links_are_all_down_makes_it_mixed() -> None:
    assert fabric_of(run_on([*joined(2), make_gpu(2, nvlinks_active=0)])).kind == "mixed"


def test_gpus_without_links_are_joined_by_the_slowest_pcie() -> None:
    cards = [make_gpu(0, nvlinks_active=0), make_gpu(1, nvlinks_active=0, pcie_generation_max=4, pcie_width_max=8)]
    fabric = fabric_of(run_on(cards))
    assert fabric == Fabric("pcie", 0, 90, 12.0, "PCIe 4 x8")
    found = expected(fabric, "all_reduce", 2)
    assert (found.gb_per_s, found.gates, found.spec_gb_per_s) == (12.0, "busbw_pcie", None)
    assert found.because == "PCIe 4 x8, a ring at the pace of its slowest hop"


def test_the_fewest_links_and_the_oldest_gpu_count() -> None:
    pair = joined(2)
    pair[1] = pair[1].model_copy(
        update={"readings": {**pair[1].readings, "nvlinks_active": 17, "compute_capability_major": 8}}
    )
    fabric = fabric_of(run_on(pair))
    assert (fabric.links, fabric.capability) == (17, 80)


def test_records_of_before_have_the_number_of_links_and_not_where_they_go() -> None:
    assert fabric_of(run_on([make_gpu(0), make_gpu(1)])) == Fabric("unknown", 18, 90, 48.0, "PCIe 5 x16")


@pytest.mark.parametrize("value", [None, True, "18", -3, 2.5])
def test_readings_that_are_no_count_are_no_links(value: Any) -> None:
    fabric = fabric_of(
        run_on(
            [
                make_gpu(0, nvlinks_active=value, nvlink_count=value),
                make_gpu(1, nvlinks_active=value, nvlink_count=value),
            ]
        )
    )
    assert fabric.links <= 1


def test_on_the_cpu_there_is_no_fabric() -> None:
    found = bandwidth_of(make_run([], on_cpu=True, collectives=[row(backend="gloo")]))
    assert (found.fabric.kind, found.largest, found.gloo_times_slower) == ("none", (), None)


def test_of_each_collective_the_largest_eager_message_in_the_faster_placement_counts() -> None:
    rows = [
        row(size_bytes=GIB, bus_bandwidth_gb_per_s=900),
        row(size_bytes=4 * GIB, bus_bandwidth_gb_per_s=340),
        row("graph", size_bytes=8 * GIB),
        row(collective="all_gather", size_bytes=4 * GIB, placement="out_of_place", bus_bandwidth_gb_per_s=270),
        row(collective="all_gather", size_bytes=4 * GIB, bus_bandwidth_gb_per_s=300),
        row(size_bytes=64 * 2**20, backend="gloo", bus_bandwidth_gb_per_s=1.5),
    ]
    found = bandwidth_of(run_on(joined(2), collectives=rows)).largest
    assert [(each.collective, each.size_bytes, each.bus_bandwidth_gb_per_s) for each in found] == [
        ("all_reduce", 4 * GIB, 340), ("all_gather", 4 * GIB, 300)
    ]  # fmt: skip
    assert found[0].share == pytest.approx(340 / 370.8)


def test_gloo_is_held_against_the_same_message() -> None:
    rows = [
        row(size_bytes=64 * 2**20, bus_bandwidth_gb_per_s=226), row(bus_bandwidth_gb_per_s=329),
        row(size_bytes=64 * 2**20, backend="gloo", bus_bandwidth_gb_per_s=1.8),
    ]  # fmt: skip
    assert bandwidth_of(run_on(joined(2), collectives=rows)).gloo_times_slower == pytest.approx(226 / 1.8)
    assert bandwidth_of(run_on(joined(2), collectives=rows[1:])).gloo_times_slower is None


def test_the_log_names_the_algorithm_of_the_same_message() -> None:
    chosen = AlgorithmChoice(collective="all_reduce", size_bytes=GIB, algorithm="NVLS", protocol="Simple")
    run = run_on(joined(8), collectives=[row()], nccl=NcclFacts(choices=[chosen]))
    assert algorithm_of(run, row()) == "NVLS"
    assert algorithm_of(run, row(size_bytes=8)) is None
    assert algorithm_of(run, row(collective="all_gather")) is None


@pytest.mark.parametrize(
    ("fabric", "collective", "ranks", "size"),
    [(H200, "all_reduce", 8, GIB), (H200, "all_gather", 8, 4 * GIB), (H200, "all_gather", 2, GIB),
     (B200, "all_reduce", 8, 8 * GIB)],
)  # fmt: skip
def test_small_messages_are_not_judged(fabric: Fabric, collective: str, ranks: int, size: int) -> None:
    assert judged_from(fabric, collective, ranks) == size


@given(links=st.integers(1, 18), ranks=st.integers(2, 72), capability=st.sampled_from([70, 80, 86, 90, 100, 103]))
def test_one_link_less_lets_expect_less_by_its_share(links: int, ranks: int, capability: int) -> None:
    for algorithm in ("Ring", "NVLS"):
        found = [
            expected(Fabric("switched", n, capability), "all_reduce", ranks, algorithm) for n in (links, links + 1)
        ]
        assert found[0].gb_per_s / found[1].gb_per_s == pytest.approx(links / (links + 1))

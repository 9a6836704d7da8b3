"""Findings about links: sentence, state, who, against what, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.finding import State
from gpubalance.checks.verdict import Verdict
from gpubalance.record.links import DeviceCopies, HostPair
from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import DeviceSamples, Samples
from gpubalance.testing.link_runs import joined_gpus, link_run, make_links, make_peer, with_links
from gpubalance.testing.runs import make_attempt, make_gpu, make_node, make_run, steady
from tests.analysis.test_links import ONE_OF_18, column, row
from tests.checks.helpers import all_of, evidence, look, one


def changed(run: Run, source: int, target: int, **values: Any) -> Run:
    """The same run with other values of one direction."""
    assert run.links is not None
    peers = [
        peer.model_copy(update=values) if (peer.source, peer.target) == (source, target) else peer
        for peer in run.links.peers
    ]
    return run.model_copy(update={"links": run.links.model_copy(update={"peers": peers})})


def on(run: Run, devices: list[Any]) -> Run:
    return run.model_copy(update={"plan": run.plan.model_copy(update={"devices": devices}), "node": make_node(devices)})


def test_healthy_links_pass_and_make_a_verdict() -> None:
    run = link_run(8, noise=0.004)
    assert look(run).verdict is Verdict.PASS
    assert one(run, "link").message.startswith("each of 56 links reaches 99")
    assert one(run, "link_data").message == "56 copies between devices brought the right bytes"
    assert one(run, "link_limit").message.startswith("copies over NVLink reach 0.87 of 18 links x 25 GB/s = 450 GB/s")
    assert one(run, "host_link").message == "copies from and to the host reach 0.88 of their bus or more"


def test_one_dead_link_of_18() -> None:
    found = one(link_run(8, column(3, ONE_OF_18)), "link")
    assert found.state is State.WARN
    assert found.message == "GPU 3 receives 5.6 % less than its peers: one of 18 links"
    assert found.subject == "cuda:3 nvml:3 GPU-00000004-aaaa-bbbb-cccc-000000000003 0000:09:00.0"
    assert found.observed == "373.1 GB/s, peers 395.0 GB/s"
    assert found.expected == ("at most 3 % less than its peers of the same class (18 NVLinks); fails above 10 %")
    assert "seen in each of 4 looks" in evidence(found)


def test_what_the_slowest_link_costs_is_said_once_and_only_where_training_shows_it() -> None:
    slow = {(2, 5): 0.8, (5, 2): 0.8, (0, 1): 0.9, (1, 0): 0.9}
    attempt = make_attempt(steady([100.0] * 8), transfer_ms=20.0, overlapped_ms=110.0)
    trained = all_of(with_links(make_run([attempt]), make_links(8, slow)), "link")
    assert [line for line in trained[0].evidence if "costs" in line] == [
        "the slowest link costs 3.6 % of the step rate"  # 4 of 110 ms, by hand in test_links of the analysis
    ]
    assert not [line for each in trained[1:] for line in each.evidence if "costs" in line]
    assert "costs" not in evidence(one(link_run(8, {(2, 5): 0.8, (5, 2): 0.8}), "link"))


SENTENCES = {
    "GPU 2 sends 11.1 % less than its peers: 2 of 18 links": (8, row(2, 1 - 2 / 18), State.FAIL),
    "GPU 3 sends and receives 20 % less than its peers": (8, {**column(3, 0.8), **row(3, 0.8)}, State.FAIL),
    "GPU 2 and GPU 5 exchange 7 % less than their peers": (8, {(2, 5): 0.93, (5, 2): 0.93}, State.WARN),
    "GPU 6 to GPU 1 moves 50 % less than other links of its kind": (8, {(6, 1): 0.5}, State.FAIL),
    "GPU 0 to GPU 1 moves 5.6 % less than the other way: one of 18 links": (2, {(0, 1): ONE_OF_18}, State.WARN),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_what_is_slow_is_said_in_one_sentence(sentence: str) -> None:
    count, shares, state = SENTENCES[sentence]
    found = one(link_run(count, shares), "link")
    assert (found.message, found.state) == (sentence, state)


def test_with_two_devices_no_culprit_is_named_and_no_link_can_stand_out() -> None:
    assert "needs a baseline" in evidence(one(link_run(2, {(0, 1): 0.9}), "link"))
    calm = one(link_run(2), "link")
    assert calm.message == "both directions between two devices are alike within 0 %"
    assert "no link can stand out" in evidence(calm)


def test_a_slow_look_that_was_not_repeated_is_neither_good_nor_bad() -> None:
    found = one(link_run(4, {(0, 1): 0.8}, looks=1), "link")
    assert found.state is State.UNKNOWN
    assert "only 1 of 4 looks" in evidence(found)
    assert not found.required


def test_wrong_bytes_fail_with_the_cure_though_access_was_claimed() -> None:
    run = changed(link_run(2), 0, 1, wrong_bytes=4096)
    found = one(run, "link_data")
    assert found.state is State.FAIL
    assert found.message == (
        "GPU 0 to GPU 1: the copy returned wrong bytes though the driver says that peer access works"
    )
    assert found.observed == "4096 of 268435456 bytes wrong"
    assert "NCCL_P2P_DISABLE=1" in (found.next_step or "")
    assert "IOMMU" in (found.next_step or "")
    assert look(run).verdict is Verdict.FAIL


def test_wrong_bytes_that_only_the_host_sees_are_wrong() -> None:
    found = one(changed(link_run(2), 1, 0, wrong_on_host_bytes=1, peer_access=False), "link_data")
    assert found.message == "GPU 1 to GPU 0: the copy returned wrong bytes when they are read in host memory"
    assert found.observed == "1 of 16777216 bytes wrong"


def test_nvlink_at_the_speed_of_pcie_means_that_peer_to_peer_is_off() -> None:
    run = changed(link_run(2, rate=40.0), 0, 1, peer_access=False)
    devices = joined_gpus(2)
    refused = make_peer(1).model_copy(update={"p2p": {"read": "CHIPSET_NOT_SUPPORTED", "nvlink": "OK"}})
    devices[0] = devices[0].model_copy(update={"peers": [refused]})
    found = one(on(run, devices), "link_limit")
    assert found.state is State.FAIL
    assert found.message == (
        "GPU 0 to GPU 1, and 1 other: NVLink joins them, but copies run at 40.0 GB/s, as over PCIe: peer-to-peer is off"
    )
    assert "CUDA says that peer access is not possible" in evidence(found)
    assert "read CHIPSET_NOT_SUPPORTED" in evidence(found)


@pytest.mark.parametrize(("rate", "state"), [(320.0, State.PASS), (300.0, State.WARN), (220.0, State.FAIL)])
def test_all_links_are_held_against_what_they_carry(rate: float, state: State) -> None:
    found = one(link_run(4, rate=rate), "link_limit")
    assert found.state is state
    assert "450 GB/s" in f"{found.message} {found.expected}"


def test_ways_over_the_board_have_no_limit_and_no_access_is_told_only() -> None:
    devices = [make_gpu(i).model_copy(update={"peers": [make_peer(1 - i, nvlink=False)]}) for i in range(2)]
    run = on(changed(link_run(2, rate=20.0), 0, 1, peer_access=False), devices)
    assert all_of(run, "link_limit") == []
    told = one(run, "peer_access")
    assert (told.state, told.evidence) == (State.INFO, ("between GPU 0 and GPU 1",))


def test_a_gpu_with_fewer_nvlinks_than_its_peers_fails_however_fast_it_is() -> None:
    devices = joined_gpus(4)
    devices[2] = devices[2].model_copy(update={"readings": {**devices[2].readings, "nvlinks_active": 17}})
    found = one(on(link_run(4), devices), "nvlinks_up")
    assert found.state is State.FAIL
    assert found.message == "GPU 2 has 17 NVLinks up, its peers have 18"
    unmeasured = on(make_run([], ranks=4), devices)
    assert one(unmeasured, "nvlinks_up") == found


def test_a_phase_that_measured_no_pair_says_nothing_of_links() -> None:
    run = link_run(1)
    assert all_of(run, "link") == []
    assert all_of(run, "link_data") == []
    assert one(run, "host_link").state is State.PASS


# The host


def host(count: int, rates: dict[int, float], **values: Any) -> Run:
    devices = [
        DeviceCopies(device=d, to_device_gb_per_s=rates.get(d, 55.3), from_device_gb_per_s=55.3) for d in range(count)
    ]
    return with_links(make_run([], ranks=count), make_links(count, devices=devices, **values))


def test_a_slow_way_to_the_host_is_held_against_its_bus() -> None:
    found = next(f for f in all_of(host(1, {0: 30.0}), "host_link"))
    assert found.state is State.FAIL
    assert found.message == "GPU 0 copies from host to device at 47.6 % of its bus"
    assert "of 63.0 GB/s, generation 5 x16 (at most; not seen while it copied)" in (found.expected or "")


@pytest.mark.parametrize(
    ("count", "rate", "state"), [(4, 48.0, State.WARN), (4, 44.2, State.FAIL), (2, 44.2, State.WARN)]
)
def test_a_slow_way_to_the_host_is_held_against_peers(count: int, rate: float, state: State) -> None:
    found = one(host(count, {1: rate}), "host_link")
    assert (found.state, found.subject) == (state, look_label(1))
    assert "slower than its peers" in found.message


def look_label(index: int) -> str:
    device = make_gpu(index)
    return f"cuda:{index} nvml:{index} {device.uuid} {device.pci_bus_id}"


@pytest.mark.parametrize(
    ("columns", "state"),
    [
        ({"pcie_generation": [5], "pcie_width": [8]}, State.FAIL),
        ({"pcie_generation": [4], "pcie_width": [16]}, State.WARN),
    ],
)
def test_a_bus_that_is_not_what_it_can_be_while_it_is_used(columns: dict[str, Any], state: State) -> None:
    run = link_run(1, rate=1.0).model_copy(
        update={
            "samples": Samples(t_s=[1.0], devices=[DeviceSamples(device=0, columns=columns)]),
            "phases": [Phase(name="links host", attempt=0, begin_s=0.0, end_s=2.0)],
        }
    )
    found = one(run, "host_link")
    assert found.state is state
    assert found.expected == "generation 5 x16"


def test_a_shared_uplink_is_told_and_not_judged() -> None:
    pairs = [HostPair(first=0, second=1, first_gb_per_s=28.756, second_gb_per_s=28.756)]
    found = one(host(4, {}, host_pairs=pairs), "shared_uplink")
    assert found.state is State.INFO
    assert found.message == (
        "GPU 0 and GPU 1 share an uplink: each gets 0.52 of its rate when two of them copy from the host"
    )


def test_host_memory_that_is_full_is_told() -> None:
    devices = [
        DeviceCopies(
            device=d, to_device_gb_per_s=55.3, from_device_gb_per_s=55.3, together_to_device_gb_per_s=55.3 * 0.6
        )
        for d in range(4)
    ]
    found = one(with_links(make_run([], ranks=4), make_links(4, devices=devices)), "shared_uplink")
    assert found.message == "when all devices copy from the host, 4 of them get no more than 0.60 of their rate"

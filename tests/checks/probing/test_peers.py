"""N6: what GPUs may do in each other's memory."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from gpubalance.checks.probing.check import gpus_of
from gpubalance.checks.probing.peers import KINDS, pairs_of
from gpubalance.record.probe import Peer, Probe
from tests.checks.probing.helpers import make_probe, only, states, worst
from tests.checks.probing.nodes import without_gpus

FREE = dict.fromkeys(KINDS, "OK")
PCIE = {**FREE, "nvlink": "NOT_SUPPORTED", "atomics": "CHIPSET_NOT_SUPPORTED"}
BLOCKED = dict.fromkeys(KINDS, "CHIPSET_NOT_SUPPORTED")
UNREAD: dict[str, str | None] = dict.fromkeys(KINDS)


def peer(index: int, p2p: dict[str, Any], topology: str | None = "NODE", missing: dict[str, str] | None = None) -> Peer:
    return Peer(nvml_index=index, topology=topology, p2p=p2p, missing=missing or {})


def two(there: Peer | None, back: Peer | None, gpu: dict[str, Any] | None = None, **values: Any) -> Probe:
    """Two GPUs and what each says of the other."""
    rows = [{**(gpu or {}), "peers": [] if said is None else [said]} for said in (there, back)]
    return make_probe(rows, **values)


def both(p2p: dict[str, Any], topology: str = "NODE", gpu: dict[str, Any] | None = None, **values: Any) -> Probe:
    return two(peer(1, p2p, topology), peer(0, p2p, topology), gpu, **values)


@pytest.mark.parametrize(
    ("look", "state", "words"),
    [
        (both(FREE), "pass", "peer-to-peer works for 1 pair"),
        (both(PCIE, "SYSTEM"), "pass", "peer-to-peer works for 1 pair"),
        (both(BLOCKED, "SINGLE"), "warn", "peer-to-peer is blocked between GPU 0 and 1, though they are close"),
        (both(BLOCKED, "MULTIPLE"), "warn", "peer-to-peer is blocked between GPU 0 and 1, though they are close"),
        (both(BLOCKED, "INTERNAL"), "warn", "peer-to-peer is blocked between GPU 0 and 1, though they are close"),
        (both(BLOCKED, "HOSTBRIDGE"), "info", "no peer-to-peer between GPU 0 and 1, with the host between them"),
        (both(BLOCKED, "SYSTEM"), "info", "no peer-to-peer between GPU 0 and 1, with the host between them"),
        (both({**BLOCKED, "nvlink": "OK"}, "SYSTEM"), "warn",
         "peer-to-peer is blocked between GPU 0 and 1, though they are close"),
        (both(BLOCKED, "SYSTEM", {"fabric_state": "COMPLETED"}), "warn",
         "peer-to-peer is blocked between GPU 0 and 1, though they are close"),
        (both(BLOCKED, "SINGLE", {"brand": 5}), "info", "no peer-to-peer between GPU 0 and 1, by design of GeForce"),
        (both(BLOCKED, "SINGLE", devices=[{"name": "NVIDIA GeForce RTX 4090"}] * 2), "info",
         "no peer-to-peer between GPU 0 and 1, by design of GeForce"),
        (both(BLOCKED, "SINGLE", devices=[{"mig_enabled": True}, {}]), "info",
         "no peer-to-peer between GPU 0 and 1, while MIG is on"),
        (both(BLOCKED, "SINGLE", {"virtualization_mode": 2}), "info",
         "no peer-to-peer between GPU 0 and 1, by the virtual machine"),
        (both(BLOCKED, "SINGLE", host={"wsl": True}), "info",
         "no peer-to-peer between GPU 0 and 1, by the virtual machine"),
        (both({**FREE, "write": "DISABLED_BY_REGKEY"}, "SINGLE"), "warn",
         "peer-to-peer is blocked between GPU 0 and 1, though they are close"),
        (two(peer(1, FREE), peer(0, {**FREE, "read": "GPU_NOT_SUPPORTED"})), "warn",
         "peer-to-peer works one way only between GPU 0 and 1"),
        (two(peer(1, {**FREE, "atomics": "NOT_SUPPORTED"}), peer(0, FREE)), "warn",
         "peer-to-peer works one way only between GPU 0 and 1"),
        (two(peer(1, {**FREE, "nvlink": "UNKNOWN"}), peer(0, FREE)), "pass", "peer-to-peer works for 1 pair"),
        (two(peer(1, FREE), None), "pass", "peer-to-peer works for 1 pair"),
        (both(dict.fromkeys(KINDS, "UNKNOWN")), "unknown", "peer-to-peer of GPU 0-1 not measured: not read"),
        (two(peer(1, UNREAD, missing={"p2p_read": "NO_PERMISSION"}), None), "unknown",
         "peer-to-peer of GPU 0-1 not measured: NO_PERMISSION"),
        (two(peer(1, {**UNREAD, "read": "OK"}, missing={"p2p_write": "NO_PERMISSION"}), None), "unknown",
         "peer-to-peer of GPU 0-1 not measured: NO_PERMISSION"),
        (two(peer(1, UNREAD, missing={"p2p_read": "SKIPPED after NOT_SUPPORTED", "topology": "UNKNOWN"}), None),
         "skip", "peer-to-peer of GPU 0-1: not supported"),
        (make_probe(count=1), "skip", "one GPU has no peer"),
        (make_probe(**without_gpus()), "skip", "not applicable"),
    ],
)  # fmt: skip
def test_two_gpus(look: Probe, state: str, words: str) -> None:
    found = worst(only("N6", look))
    assert found.state.value == state
    assert words in found.message
    assert (found.next_step is not None) == (state == "warn")


def test_gpus_that_hung_leave_their_pairs_open_and_others_judged() -> None:
    hung = {"failed": "nvmlDeviceGetP2PStatus did not return within 5 s"}
    rows = [{"peers": [peer(1, FREE)]}, {"peers": [peer(0, FREE)]}, hung, hung]
    found = only("N6", make_probe(rows))
    assert states(found) == ["unknown", "pass"]
    assert found[0].message == f"peer-to-peer of GPU 0-2, 0-3, 1-2, 1-3, 2-3 not measured: {hung['failed']}"
    assert found[1].message == "peer-to-peer works for 1 pair"


def test_many_blocked_pairs_are_one_finding_with_the_reasons() -> None:
    rows = [{"peers": [peer(j, BLOCKED, "SINGLE") for j in range(4) if j != i]} for i in range(4)]
    (found,) = only("N6", make_probe(rows))
    assert found.message == "peer-to-peer is blocked for 6 pairs of GPUs, though they are close"
    assert found.evidence == ("CHIPSET_NOT_SUPPORTED: GPU 0-1, 0-2, 0-3, 1-2, 1-3, 2-3",)


def test_pairs_over_nvlink_are_counted_apart() -> None:
    rows = [
        {"peers": [peer(1, FREE), peer(2, PCIE)]},
        {"peers": [peer(0, FREE), peer(2, PCIE)]},
        {"peers": [peer(0, PCIE), peer(1, PCIE)]},
    ]
    (found,) = only("N6", make_probe(rows))
    assert found.evidence == ("over NVLink: 1 pair", "over PCIe: 2 pairs")


def test_every_two_gpus_are_one_pair() -> None:
    numbers = [pair.numbers for pair in pairs_of(gpus_of(make_probe(count=8)))]
    assert numbers == [f"{a}-{b}" for a, b in combinations(range(8), 2)]

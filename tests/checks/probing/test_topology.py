"""A1: where GPUs sit in the host."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.finding import State
from gpubalance.checks.probing.topology import LEVELS, is_far
from gpubalance.record.probe import Peer, Probe
from tests.checks.probing.helpers import make_probe, only, states, worst
from tests.checks.probing.nodes import without_gpus

WORDS = {"PSB": "INTERNAL", "PIX": "SINGLE", "PXB": "MULTIPLE", "PHB": "HOSTBRIDGE", "NODE": "NODE", "SYS": "SYSTEM"}
HUNG = {"failed": "nvmlDeviceGetTopologyCommonAncestor did not return within 5 s"}


def seated(*rows: str, **values: Any) -> Probe:
    """GPUs whose row of the matrix is this, as nvidia-smi prints it; ? is not known for lack of rights."""
    return make_probe([{"peers": peers(row.split())} for row in rows], **values)


def peers(cells: list[str]) -> list[Peer]:
    return [
        Peer(
            nvml_index=index,
            topology=WORDS.get(cell),
            p2p={},
            missing={"topology": "NO_PERMISSION"} if cell == "?" else {},
        )
        for index, cell in enumerate(cells)
        if cell != "X"
    ]


@pytest.mark.parametrize(
    ("rows", "expected", "words"),
    [
        (["X PIX", "PIX X"], ["info"], "topology: 1 pair PIX"),
        (["X PIX SYS SYS", "PIX X SYS SYS", "SYS SYS X PIX", "SYS SYS PIX X"], ["info"],
         "topology: 2 pairs PIX, 4 pairs SYS"),
        (["X SYS", "PIX X"], ["warn", "info"], "GPU 0 and 1 contradict each other about their PCIe path"),
        (["X PXB SYS", "PXB X SYS", "SYS SYS X"], ["warn", "info"],
         "GPU 2 is farther from all its peers than they are from each other"),
        (["X PXB PXB", "PXB X SYS", "PXB SYS X"], ["info"], "topology: 2 pairs PXB, 1 pair SYS"),
        (["X SYS SYS", "SYS X SYS", "SYS SYS X"], ["info"], "topology: 3 pairs SYS"),
        (["X ?", "? X"], ["unknown"], "topology not measured: NO_PERMISSION"),
        (["X PIX", "? X"], ["unknown", "info"], "topology of GPU 1 not measured: NO_PERMISSION"),
    ],
)  # fmt: skip
def test_the_matrix_is_told_and_judged(rows: list[str], expected: list[str], words: str) -> None:
    found = only("A1", seated(*rows))
    assert states(found) == expected
    assert worst(found).message == words


def test_the_whole_matrix_is_evidence() -> None:
    (found,) = only("A1", seated("X PIX SYS", "PIX X NODE", "SYS NODE X", host={"virtual_machine": True}))
    assert found.evidence[:3] == ("GPU 0: X PIX SYS", "GPU 1: PIX X NODE", "GPU 2: SYS NODE X")
    assert "hypervisor" in found.evidence[3]


def test_a_seat_that_a_hypervisor_painted_is_not_judged() -> None:
    rows = ("X PXB SYS", "PXB X SYS", "SYS SYS X")
    assert states(only("A1", seated(*rows, host={"virtual_machine": True}))) == ["info"]


def test_the_gpu_that_sits_apart_is_named() -> None:
    found = worst(only("A1", seated("X SYS SYS", "SYS X PIX", "SYS PIX X")))
    assert found.state is State.WARN
    assert found.observed == "X SYS SYS"
    assert found.subject is not None
    assert "nvml:0" in found.subject


def test_a_gpu_that_hung_has_no_row() -> None:
    found = only("A1", make_probe([{"peers": peers(["X", "PIX"])}, HUNG]))
    assert states(found) == ["unknown", "info"]
    assert found[0].message == f"topology of GPU 1 not measured: {HUNG['failed']}"
    assert found[1].evidence == ("GPU 0: X PIX", "GPU 1: ? X")


@pytest.mark.parametrize("reason", ["NOT_SUPPORTED", "SKIPPED after NOT_SUPPORTED", "FUNCTION_NOT_FOUND"])
def test_a_driver_without_topology_is_skipped(reason: str) -> None:
    rows = [
        {"peers": [Peer(nvml_index=1 - index, topology=None, p2p={}, missing={"topology": reason})]} for index in (0, 1)
    ]
    assert [(f.state, f.message) for f in only("A1", make_probe(rows))] == [(State.SKIP, "topology: not supported")]


@pytest.mark.parametrize(
    ("look", "words"), [(make_probe(count=1), "one GPU has no peer"), (make_probe(**without_gpus()), "not applicable")]
)
def test_without_peers_there_is_no_topology(look: Probe, words: str) -> None:
    (found,) = only("A1", look)
    assert found.state is State.SKIP
    assert words in found.message


@given(levels=st.lists(st.sampled_from(LEVELS), min_size=6, max_size=6))
def test_of_four_gpus_at_most_one_sits_apart(levels: list[str]) -> None:
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    half = dict(zip(pairs, levels, strict=True))
    matrix = half | {(b, a): level for (a, b), level in half.items()}
    assert sum(is_far(index, matrix, range(4)) for index in range(4)) <= 1

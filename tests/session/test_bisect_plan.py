"""Which trials follow a hang, and what they say: whole searches against made-up nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.record.hang import BisectTrial
from gpubalance.session.bisect_plan import (
    NCCL_SWITCHES,
    Trial,
    cures_of,
    next_trials,
    pair_rounds,
    smallest_failing,
    switches_for,
    was_repeated,
)

P2P, NVLS, SHM, CUMEM = NCCL_SWITCHES
Node = Callable[[Sequence[int], str | None], str]


def search(world: int, node: Node, switches: Sequence[str] = NCCL_SWITCHES) -> tuple[list[Trial], list[BisectTrial]]:
    """Every trial of the search, in order; `node` says how each ends."""
    done: list[BisectTrial] = []
    order: list[Trial] = []
    while trials := next_trials(world, switches, done):
        used = [rank for trial in trials for rank in trial.ranks]
        assert len(used) == len(set(used)), "trials that run together share no device"
        order += trials
        for trial in trials:
            outcome = node(trial.ranks, trial.switch)
            done.append(
                BisectTrial.model_validate(
                    {"ranks": list(trial.ranks), "switch": trial.switch, "outcome": outcome, "seconds": 1.0}
                )
            )
        assert len(done) < 200
    return order, done


def broken_between(bad: set[int], *cures: str) -> Node:
    """All-reduce hangs where all of these devices take part, unless one of the switches is set."""
    return lambda ranks, switch: "hangs" if bad <= set(ranks) and switch not in cures else "works"


@pytest.mark.parametrize(
    ("world", "node", "repeated", "smallest", "cures"),
    [
        (2, lambda ranks, switch: "works", False, None, []),
        (2, broken_between({0, 1}), True, [0, 1], []),
        (2, broken_between({0, 1}, P2P), True, [0, 1], [P2P]),
        (2, broken_between({0, 1}, NVLS, CUMEM, P2P), True, [0, 1], [NVLS, CUMEM, P2P]),
        (2, broken_between({0, 1}, CUMEM, P2P), True, [0, 1], [CUMEM, P2P]),
        (2, broken_between({0, 1}, SHM), True, [0, 1], [SHM]),
        (2, lambda ranks, switch: "wrong" if switch is None else "works", True, [0, 1], [NVLS, CUMEM, SHM, P2P]),
        (2, lambda ranks, switch: "fails", True, [0, 1], []),
        (3, broken_between({1, 2}, P2P), True, [1, 2], [P2P]),
        (8, broken_between({3, 6}, P2P), True, [3, 6], [P2P]),
        (8, broken_between({3, 6}), True, [3, 6], []),
        (8, broken_between({5}, P2P), True, None, [P2P]),  # any pair with 5
        (8, broken_between({0, 1, 2}, NVLS), True, list(range(8)), [NVLS]),  # no pair fails
        (2, lambda ranks, switch: "unfinished", None, None, []),
    ],
)
def test_a_search_ends_with_the_smallest_failing_set_and_what_cures_it(
    world: int, node: Node, repeated: bool | None, smallest: list[int] | None, cures: list[str]
) -> None:
    order, done = search(world, node)
    assert order[0] == Trial(tuple(range(world)))
    assert was_repeated(world, done) is repeated
    found = smallest_failing(world, done)
    if smallest is None and repeated:
        assert found is not None
        assert len(found) == 2
        assert 5 in found
    else:
        assert found == smallest
    assert (cures_of(found, done) if found else []) == cures
    assert len({(trial.ranks, trial.switch) for trial in order}) == len(order), "nothing is tried twice"


def test_what_works_in_fresh_processes_needs_no_further_trial() -> None:
    assert len(search(8, lambda ranks, switch: "works")[0]) == 1


def test_two_devices_need_five_trials_and_eight_at_most_forty() -> None:
    """One as is and four switches; 28 pairs in 7 rounds more, and the cures over the pair."""
    assert len(search(2, broken_between({0, 1}))[0]) == 5
    assert len(search(8, broken_between(set(range(8)), *NCCL_SWITCHES))[0]) == 5 + 28


def test_a_cure_of_all_is_tried_on_the_pair_before_it_is_named_for_it() -> None:
    order, done = search(4, broken_between({2, 3}, P2P))
    assert order[-1] == Trial((2, 3), P2P)
    assert done[-1].outcome == "works"


@given(st.integers(2, 17))
def test_rounds_hold_every_pair_once_and_no_device_twice(world: int) -> None:
    rounds = pair_rounds(world)
    pairs = [pair for each in rounds for pair in each]
    assert sorted(pairs) == [(a, b) for a in range(world) for b in range(a + 1, world)]
    assert all(len({rank for pair in each for rank in pair}) == 2 * len(each) for each in rounds)
    assert len(rounds) == world - 1 + world % 2


@pytest.mark.parametrize(
    ("backend", "environment", "switches"),
    [
        ("nccl", {}, NCCL_SWITCHES),
        ("nccl", {"NCCL_P2P_DISABLE": "0"}, NCCL_SWITCHES),
        ("nccl", {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}, (SHM, CUMEM)),
        ("nccl", {"GLOO_SOCKET_IFNAME": "eth0"}, NCCL_SWITCHES),
        ("gloo", {}, ()),
        ("gloo", {"GLOO_SOCKET_IFNAME": "lo"}, ()),
        ("gloo", {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_P2P_DISABLE": "1"}, ("GLOO_SOCKET_IFNAME=lo",)),
    ],
)
def test_only_what_changes_something_is_switched(
    backend: str, environment: dict[str, str], switches: tuple[str, ...]
) -> None:
    assert switches_for(backend, environment) == switches

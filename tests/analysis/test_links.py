"""Which links are slow: tables by hand for eight, three, two devices and one, and noise that must never be named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.analysis.facts import compute_facts
from gpubalance.analysis.link_classes import LinkClass, link_class, nominal_gb_per_s
from gpubalance.analysis.links import LinkFacts, Slow, dead_links, link_facts
from gpubalance.record.run import Run
from gpubalance.testing.link_runs import joined_gpus, link_run, make_links, make_peer, with_links
from gpubalance.testing.runs import make_attempt, make_gpu, make_node, make_run, steady

ONE_OF_18 = 1 - 1 / 18
WARN = 0.03


def facts_of(run: Run) -> LinkFacts:
    facts = link_facts(run, WARN)
    assert facts is not None
    return facts


def column(device: int, share: float, count: int = 8) -> dict[tuple[int, int], float]:
    """Everything that this device receives."""
    return {(other, device): share for other in range(count) if other != device}


def row(device: int, share: float, count: int = 8) -> dict[tuple[int, int], float]:
    """Everything that it sends."""
    return {(device, other): share for other in range(count) if other != device}


def told(slow: Slow) -> tuple[str, tuple[int, ...], float, int | None]:
    return slow.side, slow.devices, round(slow.behind, 4), slow.dead_links


CASES = {
    "nothing": (8, {}, []),
    "a dead link on the receiving side": (8, column(3, ONE_OF_18), [("receives", (3,), 0.0556, 1)]),
    "a dead link on the sending side": (8, row(6, ONE_OF_18), [("sends", (6,), 0.0556, 1)]),
    "a dead link both ways": (8, {**column(3, ONE_OF_18), **row(3, ONE_OF_18)}, [("device", (3,), 0.0556, 1)]),
    "two dead links": (8, row(0, 1 - 2 / 18), [("sends", (0,), 0.1111, 2)]),
    "a pair": (8, {(2, 5): 0.8, (5, 2): 0.8}, [("pair", (2, 5), 0.2, None)]),
    "one direction": (8, {(7, 1): 0.9}, [("direction", (7, 1), 0.1, None)]),
    "a bad device and a bad pair": (
        8, {**column(3, 0.9), **row(3, 0.9), (0, 1): 0.95},
        [("device", (3,), 0.1, None), ("direction", (0, 1), 0.05, 1)],
    ),
    "two devices that receive slowly": (
        8, {**column(3, 0.9), **column(4, 0.95)}, [("receives", (3,), 0.1, None), ("receives", (4,), 0.05, 1)],
    ),
    "two bad devices of eight": (
        8, {**column(3, 0.9), **row(3, 0.9), **column(4, 0.9), **row(4, 0.9)},
        [("device", (3,), 0.1, None), ("device", (4,), 0.1, None)],
    ),
    "a bad device of three": (
        3, {**column(2, ONE_OF_18, 3), **row(2, ONE_OF_18, 3)}, [("device", (2,), 0.0556, 1)],
    ),
    "a receiving side of three": (3, column(1, ONE_OF_18, 3), [("receives", (1,), 0.0556, 1)]),
    "a direction of three": (3, {(0, 1): 0.9}, [("direction", (0, 1), 0.1, None)]),
    "a direction of two": (2, {(1, 0): ONE_OF_18}, [("direction", (1, 0), 0.0556, 1)]),
    "two that are slow alike": (2, {(0, 1): 0.5, (1, 0): 0.5}, []),
    "one device": (1, {}, []),
}  # fmt: skip


@pytest.mark.parametrize(("count", "shares", "expected"), CASES.values(), ids=CASES.keys())
def test_what_is_slow_is_named_by_the_fewest_things_that_explain_it(
    count: int, shares: dict[tuple[int, int], float], expected: list[tuple[str, tuple[int, ...], float, int | None]]
) -> None:
    facts = facts_of(link_run(count, shares))
    assert [told(slow) for slow in facts.slow] == expected
    assert all(slow.confirmed for slow in facts.slow)


@given(st.integers(2, 9), st.integers(0, 10_000))
def test_noise_of_four_tenths_of_a_percent_is_never_a_slow_link(count: int, seed: int) -> None:
    facts = facts_of(link_run(count, noise=0.004, seed=seed))
    assert facts.slow == ()
    assert facts.score is not None
    assert facts.score > 99


@given(st.integers(4, 9), st.integers(0, 10_000), st.data())
def test_a_dead_link_is_found_in_noise_on_any_device(count: int, seed: int, data: st.DataObject) -> None:
    device = data.draw(st.integers(0, count - 1))
    shares = dict.fromkeys(column(device, 1.0, count), 1 - 1 / 18)
    (slow,) = facts_of(link_run(count, shares, noise=0.004, seed=seed)).slow
    assert (slow.side, slow.devices, slow.dead_links) == ("receives", (device,), 1)


@given(st.permutations(range(6)))
def test_numbers_of_devices_do_not_matter(order: list[int]) -> None:
    shares = {**column(3, 0.94, 6), (0, 1): 0.9, (1, 0): 0.9}
    moved = {(order[a], order[b]): share for (a, b), share in shares.items()}
    here, there = facts_of(link_run(6, shares)), facts_of(link_run(6, moved))
    assert sorted((s.side, round(s.behind, 9), sorted(order[d] for d in s.devices)) for s in here.slow) == sorted(
        (s.side, round(s.behind, 9), sorted(s.devices)) for s in there.slow
    )


def test_one_low_look_of_four_is_noise_and_the_best_look_decides() -> None:
    links = make_links(4)
    first = links.peers[0].model_copy(update={"looks_gb_per_s": [300.0, 395.0, 395.0, 395.0]})
    run = with_links(make_run([], ranks=4), links.model_copy(update={"peers": [first, *links.peers[1:]]}))
    assert facts_of(run).slow == ()


def test_what_was_looked_at_once_is_not_confirmed_and_costs_nothing() -> None:
    facts = facts_of(link_run(4, {(0, 1): 0.8}, looks=1))
    assert [slow.confirmed for slow in facts.slow] == [False]
    assert facts.slowest == 1.0


@pytest.mark.parametrize(
    ("behind", "links", "dead"),
    [(1 / 18, 18, 1), (1 / 12, 12, 1), (0.0596, 18, 1), (0.063, 18, None), (0.2, 18, None), (0.25, 4, 1),
     (0.5, 2, 1), (0.5, 1, None), (0.05, None, None), (2 / 18, 18, 2), (0.0, 18, None)],
)  # fmt: skip
def test_dead_links_by_their_share(behind: float, links: int | None, dead: int | None) -> None:
    assert dead_links(behind, links) == dead


def test_the_score_is_the_slowest_link_over_the_median_of_its_class() -> None:
    assert facts_of(link_run(8, {(0, 1): 0.8})).score == pytest.approx(80)
    assert facts_of(link_run(8)).score == pytest.approx(100)
    assert facts_of(link_run(1)).score is None


# Classes


def bridged(run: Run, *, links: int | None) -> Run:
    """Four GPUs: 0-1 and 2-3 over bridges, everything else over the board."""
    devices = [
        make_gpu(i, nvlink_speed_mb_per_s=25000, nvlink_count=12, nvlinks_active=12).model_copy(
            update={
                "peers": [
                    make_peer(j, nvlink=i // 2 == j // 2, links=links if i // 2 == j // 2 else 0)
                    for j in range(4)
                    if j != i
                ]
            }
        )
        for i in range(4)
    ]
    plan = run.plan.model_copy(update={"devices": devices})
    return run.model_copy(update={"plan": plan, "node": make_node(devices)})


BOARD = dict.fromkeys([(a, b) for a in range(4) for b in range(4) if a // 2 != b // 2], 0.06)


def test_ways_over_the_board_are_not_held_against_bridges() -> None:
    assert facts_of(bridged(link_run(4, BOARD), links=12)).slow == ()


def test_a_bridge_is_held_against_the_other_bridge() -> None:
    run = bridged(link_run(4, {**BOARD, (2, 3): 1 - 1 / 12, (3, 2): 1 - 1 / 12}), links=12)
    assert [told(slow) for slow in facts_of(run).slow] == [("pair", (2, 3), 0.0833, 1)]


def test_nvlinks_of_unknown_number_are_held_against_the_way_back_only() -> None:
    both = {**BOARD, (2, 3): 0.5, (3, 2): 0.5}
    assert link_class(bridged(link_run(4, both), links=None), 2, 3).links is None
    assert facts_of(bridged(link_run(4, both), links=None)).slow == ()
    one = facts_of(bridged(link_run(4, {**BOARD, (2, 3): 0.9}), links=None))
    assert [told(slow)[:2] for slow in one.slow] == [("direction", (2, 3))]


def test_without_nvmls_word_there_is_no_class() -> None:
    run = make_run([], ranks=4, links=make_links(4, {(0, 1): 0.5, (1, 0): 0.5}))
    assert link_class(run, 0, 1) == LinkClass(None, None, None, ("NVIDIA H200",))
    assert facts_of(run).slow == ()


def test_a_link_that_is_down_leaves_its_gpu_in_the_class_of_its_peers() -> None:
    run = link_run(8, column(3, ONE_OF_18))
    devices = joined_gpus(8)
    devices[3] = devices[3].model_copy(update={"readings": {**devices[3].readings, "nvlinks_active": 17}})
    run = run.model_copy(update={"plan": run.plan.model_copy(update={"devices": devices}), "node": make_node(devices)})
    assert [told(slow) for slow in facts_of(run).slow] == [("receives", (3,), 0.0556, 1)]


@pytest.mark.parametrize(
    ("raw", "nominal"),
    [(26562, 25.0), (25781, 25.0), (25000, 25.0), (53125, 50.0), (50000, 50.0), (20000, 20.0), (0, None), (None, None)],
)
def test_what_an_nvlink_carries(raw: int | None, nominal: float | None) -> None:
    assert nominal_gb_per_s(make_gpu(0, nvlink_speed_mb_per_s=raw)) == nominal


def test_the_limit_is_links_times_25() -> None:
    found = link_class(link_run(2), 0, 1)
    assert (found.name, found.limit_gb_per_s) == ("18 NVLinks", 450.0)


# What a slow link costs


def test_a_slow_link_is_a_factor_of_the_score_by_hand() -> None:
    attempt = make_attempt(steady([100.0] * 8), transfer_ms=20.0, overlapped_ms=110.0)  # X = 10, X_f = 20
    run = with_links(make_run([attempt]), make_links(8, {(2, 5): 0.8, (5, 2): 0.8}))
    first = compute_facts(run, 0.05, 0.10).first
    assert first is not None
    # X_f,ref = 16, X_ref = max(16 / 12 layers, 10 - 4) = 6: 4 of 110 ms are lost
    assert first.balance.link == pytest.approx(100 * 106 / 110)
    assert first.balance.score == pytest.approx(100 * 106 / 110)
    assert first.balance.lost_ms == pytest.approx(4.0)


def test_the_last_bucket_cannot_be_hidden_by_any_link() -> None:
    attempt = make_attempt(steady([100.0] * 8), transfer_ms=20.0, overlapped_ms=102.0)  # X = 2
    run = with_links(make_run([attempt]), make_links(8, {(2, 5): 0.4, (5, 2): 0.4}))
    first = compute_facts(run, 0.05, 0.10).first
    assert first is not None
    # X_f,ref = 8, of which the last of 12 layers is 8 / 12 = 0.667
    assert first.balance.link == pytest.approx(100 * (100 + 8 / 12) / 102)


@given(st.floats(0.05, 1.0), st.floats(0.0, 30.0))
def test_factors_multiply_to_the_score(share: float, exposed_ms: float) -> None:
    attempt = make_attempt(steady([100.0, 107.0, 103.0, 100.0], noise=0.01), overlapped_ms=107.5 + exposed_ms)
    run = with_links(make_run([attempt]), make_links(4, {(0, 1): share, (1, 0): share}))
    first = compute_facts(run, 0.05, 0.10).first
    assert first is not None
    balance = first.balance
    assert balance.link is not None
    assert 0 < balance.link <= 100
    assert balance.score == pytest.approx(min(100.0, balance.link * balance.persistent * balance.transient / 1e4))


def test_healthy_links_cost_nothing_and_links_that_were_not_measured_have_no_factor() -> None:
    attempt = make_attempt(steady([100.0] * 4), overlapped_ms=110.0)
    plain = compute_facts(make_run([attempt]), 0.05, 0.10).first
    healthy = compute_facts(with_links(make_run([attempt]), make_links(4)), 0.05, 0.10).first
    assert plain is not None
    assert healthy is not None
    assert (plain.balance.link, healthy.balance.link) == (None, 100.0)
    assert plain.balance.score == healthy.balance.score

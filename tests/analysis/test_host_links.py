"""Ways to the host: who shares one, and what the bus was while it was used."""

from __future__ import annotations

import pytest

from gpubalance.analysis.host_links import HostFacts, host_facts
from gpubalance.record.links import DeviceCopies, HostPair
from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import DeviceSamples, Samples
from gpubalance.testing.link_runs import link_run, make_links, with_links
from gpubalance.testing.runs import make_run


def facts_of(run: Run) -> HostFacts:
    facts = host_facts(run)
    assert facts is not None
    return facts


def pair(first: int, second: int, *rates: float) -> HostPair:
    return HostPair(first=first, second=second, first_gb_per_s=rates[0], second_gb_per_s=rates[1])


def test_devices_that_halve_each_other_share_a_way() -> None:
    pairs = [pair(0, 1, 28.756, 28.0), pair(0, 2, 55.0, 55.0), pair(2, 3, 30.0, 27.65), pair(1, 2, 55.0, 30.0)]
    found = facts_of(link_run(4, host_pairs=pairs))
    assert found.shared == ((0, 1), (2, 3))
    assert found.share == (pytest.approx(28.0 / 55.3), pytest.approx(0.5))


def test_groups_grow_by_whom_their_members_slow() -> None:
    pairs = [pair(2, 3, 28.0, 28.0), pair(0, 1, 28.0, 28.0), pair(1, 2, 28.0, 28.0)]
    assert facts_of(link_run(4, host_pairs=pairs)).shared == ((0, 1, 2, 3),)


def test_one_that_loses_alone_shares_with_nobody() -> None:
    assert facts_of(link_run(4, host_pairs=[pair(0, 1, 55.0, 20.0)])).shared == ()


def test_shares_are_of_the_own_rate_alone() -> None:
    devices = [
        DeviceCopies(device=0, to_device_gb_per_s=50.0, together_to_device_gb_per_s=26.0, from_device_gb_per_s=40.0),
        DeviceCopies(device=1, memory_copy_gb_per_s=4000.0),
    ]
    first, second = facts_of(with_links(make_run([]), make_links(2, devices=devices))).links
    assert (first.together_to, first.together_from) == (0.52, None)
    assert (second.together_to, second.together_from) == (None, None)


def test_no_copies_with_the_host_are_no_facts() -> None:
    assert host_facts(make_run([])) is None
    devices = [DeviceCopies(device=0, memory_copy_gb_per_s=1.0)]
    assert host_facts(with_links(make_run([]), make_links(2, devices=devices))) is None


def test_the_bus_is_what_it_was_while_it_was_used() -> None:
    columns = {"pcie_generation": [1, 5, 4, 1], "pcie_width": [16, 8, None, 16]}
    run = link_run(2).model_copy(
        update={
            "samples": Samples(t_s=[0.0, 1.0, 2.0, 3.0], devices=[DeviceSamples(device=0, columns=columns)]),
            "phases": [Phase(name="links host", attempt=0, begin_s=0.5, end_s=2.5)],
        }
    )
    seen, unseen = (link.bus for link in facts_of(run).links)
    assert (seen.generation, seen.width) == (5, 8)
    assert seen.limit_gb_per_s == pytest.approx(8 * 3.938)
    assert (unseen.generation, unseen.width) == (None, None)
    assert unseen.limit_gb_per_s == pytest.approx(16 * 3.938)

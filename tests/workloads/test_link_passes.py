"""Order, rounds, repeats and lines of the links phase, without any GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations, permutations
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.workloads.link_copier import wrong_bytes
from gpubalance.workloads.link_passes import Copier, LinkPasses, Route, planned_seconds, rounds, sized, to_repeat
from tests.workloads.host_copier import HostCopier, ToldCopier

Line = tuple[str, dict[str, Any]]


def lines_of(copier: Copier) -> list[Line]:
    """Everything that the phase writes; the window stands among the lines."""
    lines: list[Line] = []

    @contextmanager
    def window(name: str) -> Iterator[None]:
        lines.append(("window", {"name": name, "edge": "begin"}))
        yield
        lines.append(("window", {"name": name, "edge": "end"}))

    LinkPasses(copier, lambda event, **values: lines.append((event, values)), window).run()
    return lines


def of(lines: Sequence[Line], event: str) -> list[dict[str, Any]]:
    return [values for name, values in lines if name == event]


def even(route: Route, routes: Sequence[Route]) -> float:
    return 400.0 if None not in (route.source, route.target) else 50.0


@given(st.integers(2, 16))
def test_in_rounds_everybody_meets_everybody_once_and_nobody_twice_at_a_time(devices: int) -> None:
    found = rounds(devices)
    met = [frozenset(pair) for pairs in found for pair in pairs]
    assert sorted(map(sorted, met)) == sorted(map(list, combinations(range(devices), 2)))
    assert len(found) == devices - 1 + devices % 2
    for pairs in found:
        assert len({device for pair in pairs for device in pair}) == 2 * len(pairs) == devices - devices % 2


@pytest.mark.parametrize(
    ("whole_ms", "size", "copies"),
    [(0.68, 2**28, 15), (0.3, 2**28, 16), (6.0, 2**28, 2), (22.0, 34 * 2**21, 2), (1000.0, 2**25, 2)],
)
def test_a_sample_takes_about_ten_milliseconds_over_nvlink_and_pcie(whole_ms: float, size: int, copies: int) -> None:
    assert sized(whole_ms, 2**28) == (size, copies)


def test_small_buffers_are_copied_whole() -> None:
    assert sized(100.0, 2**24) == (2**24, 2)


def test_every_pair_is_checked_before_any_is_timed_and_named_before_it_is_touched() -> None:
    lines = lines_of(HostCopier(3))
    names = [name for name, _ in lines]
    assert names.index("link_look") > max(i for i, name in enumerate(names) if name == "link_check")
    assert [(v["source"], v["target"]) for v in of(lines, "link_check")] == list(permutations(range(3), 2))
    measured = {"link_check", "link_look", "link_both", "link_together", "device_copies", "host_pair"}
    seen_doing = False
    for name, values in lines:
        if name == "doing":
            seen_doing = True
            said = values["what"]
        elif name == "link_check":
            assert seen_doing
            assert said == f"copying from part {values['source']} to part {values['target']}"
        elif name in measured:
            assert seen_doing
    assert names[-1] == "links_end"


def test_wrong_bytes_are_counted_for_the_pair_that_brings_them() -> None:
    checks = of(lines_of(HostCopier(3, spoil=(2, 0))), "link_check")
    assert {(v["source"], v["target"]): v["wrong_bytes"] for v in checks if v["wrong_bytes"]} == {(2, 0): 1}
    assert {v["checked_bytes"] for v in checks} == {2**16}


def test_rates_are_bytes_over_time_and_within_a_device_twice_that() -> None:
    lines = lines_of(ToldCopier(2, even))
    assert [v["gb_per_s"] for v in of(lines, "link_look")] == pytest.approx([400.0, 400.0])
    rates = {key: value for values in of(lines, "device_copies") for key, value in values.items()}
    assert rates["memory_copy_gb_per_s"] == pytest.approx(800.0)
    assert rates["to_device_gb_per_s"] == rates["from_device_gb_per_s"] == pytest.approx(50.0)
    assert rates["together_to_device_gb_per_s"] == pytest.approx(50.0)


def test_each_direction_has_its_own_rate_while_both_run() -> None:
    def rate(route: Route, routes: Sequence[Route]) -> float:
        return 400.0 if len(routes) == 1 or None in (route.source, route.target) else 390.0 + (route.source or 0)

    both = of(lines_of(ToldCopier(2, rate)), "link_both")
    assert [(v["source"], v["target"], round(v["gb_per_s"], 6)) for v in both] == [(0, 1, 390.0), (1, 0, 391.0)]


def test_all_at_once_covers_every_direction_once() -> None:
    copier = ToldCopier(4, even)
    together = of(lines_of(copier), "link_together")
    assert sorted((v["source"], v["target"]) for v in together) == list(permutations(range(4), 2))
    at_once = {len(routes) for routes, _, _ in copier.asked}
    assert at_once == {1, 2, 4}


def test_a_slow_pair_is_looked_at_three_times_more() -> None:
    def rate(route: Route, routes: Sequence[Route]) -> float:
        return 400.0 * (1 - 1 / 18) if route.target == 2 and route.source is not None else even(route, routes)

    looks = of(lines_of(ToldCopier(4, rate)), "link_look")
    counts = {pair: sum((v["source"], v["target"]) == pair for v in looks) for pair in permutations(range(4), 2)}
    assert counts == {pair: 4 if pair[1] == 2 else 1 for pair in counts}


def test_repeats_end_when_their_time_is_up() -> None:
    lines = lines_of(ToldCopier(8, lambda route, _: 2.0 if (route.source or 0) % 2 else 2.2))
    repeated = len(of(lines, "link_look")) - 56
    assert 0 < repeated < 3 * 28


REPEATED = {
    "healthy with noise": ({(0, 1): 395.0, (1, 0): 394.0, (0, 2): 396.5, (2, 0): 395.5}, []),
    "one of two": ({(0, 1): 400.0, (1, 0): 380.0}, [(1, 0)]),
    "half the rate of the way back": ({(0, 1): 400.0, (1, 0): 200.0}, [(1, 0)]),
    "worst first": (
        {(0, 1): 400.0, (1, 0): 400.0, (0, 2): 400.0, (2, 0): 360.0, (1, 2): 380.0, (2, 1): 400.0}, [(2, 0), (1, 2)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rates", "expected"), REPEATED.values(), ids=REPEATED.keys())
def test_which_pairs_are_looked_at_again(rates: dict[tuple[int, int], float], expected: list[tuple[int, int]]) -> None:
    assert to_repeat(rates) == expected


def test_what_may_be_slow_by_its_class_comes_after_what_is_slower_than_its_like() -> None:
    rates = {(a, b): 250.0 if a // 2 == b // 2 else 20.0 for a, b in permutations(range(4), 2)}
    rates[0, 2] = 18.0
    first, *rest = to_repeat(rates)
    assert first == (0, 2)
    assert (0, 1) not in rest


def test_whoever_loses_when_all_copy_is_tried_in_pairs() -> None:
    """0 and 1 share a way to the host."""

    def rate(route: Route, routes: Sequence[Route]) -> float:
        if route.source is not None and route.target is not None:
            return 400.0
        busy = {r.target if r.source is None else r.source for r in routes}
        own = route.target if route.source is None else route.source
        return 25.0 if own in (0, 1) and {0, 1} <= busy else 50.0

    lines = lines_of(ToldCopier(4, rate))
    (pair,) = of(lines, "host_pair")
    assert (pair["first"], pair["second"]) == (0, 1)
    assert pair["first_gb_per_s"] == pytest.approx(25.0)
    edges = [i for i, (name, _) in enumerate(lines) if name == "window"]
    assert edges[0] < next(i for i, (name, _) in enumerate(lines) if name == "host_pair") < edges[1]


@pytest.mark.parametrize(("devices", "missing"), [
    (1, {"peers": "one device has no peer", "host_together": "one device has nobody to share with"}),
    (2, {"together": "fewer than four devices: no two pairs can copy at once"}),
    (3, {"together": "fewer than four devices: no two pairs can copy at once"}),
    (4, {}),
])  # fmt: skip
def test_what_too_few_devices_cannot_show_is_said(devices: int, missing: dict[str, str]) -> None:
    (end,) = of(lines_of(HostCopier(devices)), "links_end")
    assert end["missing"] == missing


def test_without_pinned_memory_the_rest_is_kept() -> None:
    class Poor(HostCopier):
        def host_buffer(self, device: int) -> tuple[int | None, str | None]:
            raise RuntimeError("CUDA error: out of memory\nmore")

    lines = lines_of(Poor(2))
    assert of(lines, "links_end")[0]["missing"]["host"] == "no pinned host memory: CUDA error: out of memory"
    assert len(of(lines, "link_look")) >= 2


PLANNED = [(2, 395.0, 55.0, 1.0), (8, 395.0, 55.0, 5.0), (8, 22.0, 22.0, 6.0)]


@pytest.mark.parametrize(("devices", "peer", "host", "most"), PLANNED)
def test_the_plan_fits_its_time(devices: int, peer: float, host: float, most: float) -> None:
    copier = ToldCopier(devices, lambda route, _: host if None in (route.source, route.target) else peer)
    lines_of(copier)
    moved = sum(
        copies * max(size / 1e9 / (host if None in (r.source, r.target) else peer) for r in routes)
        for routes, size, copies in copier.asked
        if not any(r.source == r.target for r in routes)
    )
    checked = devices * (devices - 1) * copier.buffer_bytes / 1e9 / peer
    assert planned_seconds(devices, peer, host) == pytest.approx(moved + checked, rel=0.01)
    assert moved + checked < most


@given(st.binary(min_size=8, max_size=64), st.binary(min_size=8, max_size=64))
def test_wrong_bytes_are_those_that_differ(one: bytes, other: bytes) -> None:
    length = min(len(one), len(other)) // 8 * 8
    a, b = (torch.frombuffer(bytearray(text[:length]), dtype=torch.int64) for text in (one, other))
    assert wrong_bytes(a, b) == sum(x != y for x, y in zip(one[:length], other[:length], strict=True))

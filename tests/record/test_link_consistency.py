"""Links that no phase can have measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpubalance.record.consistency import contradiction
from gpubalance.record.run import Run
from gpubalance.testing.link_runs import link_run

Document = dict[str, Any]


def peers(document: Document) -> list[Any]:
    found: list[Any] = document["links"]["peers"]
    return found


def pair(**values: Any) -> dict[str, Any]:
    return {"first": 0, "second": 1, "first_gb_per_s": 1.0, "second_gb_per_s": 1.0, **values}


BROKEN: dict[str, Callable[[Document], Any]] = {
    "links.peers names device 2, the plan has 2": lambda d: peers(d)[0].update(target=2),
    "links.peers names device -1, the plan has 2": lambda d: peers(d)[0].update(source=-1),
    "links.devices names device 7, the plan has 2": lambda d: d["links"]["devices"][0].update(device=7),
    "links.host_pairs names device 9, the plan has 2": lambda d: d["links"].update(host_pairs=[pair(second=9)]),
    "links.peers names (0, 0) twice": lambda d: peers(d)[0].update(target=0),
    "links.peers names (1, 0) twice": lambda d: peers(d)[0].update(source=1, target=0),
    "links.devices names 1 twice": lambda d: d["links"]["devices"][0].update(device=1),
    "links.host_pairs names (0, 1) twice": lambda d: d["links"].update(host_pairs=[pair(), pair(first=1, second=0)]),
    "links.peers 0 to 1: a rate is 0, it must be above 0": lambda d: peers(d)[0].update(looks_gb_per_s=[0.0]),
    "links.peers 0 to 1: a rate is -1, it must be above 0": lambda d: peers(d)[0].update(both_ways_gb_per_s=-1.0),
    "links.peers 0 to 1: 9 wrong bytes of 8": lambda d: peers(d)[0].update(checked_bytes=8, wrong_bytes=9),
    "links.peers 0 to 1: None wrong bytes of 8": lambda d: peers(d)[0].update(checked_bytes=8, wrong_bytes=None),
    "links: a rate is 0, it must be above 0": lambda d: d["links"]["devices"][0].update(to_device_gb_per_s=0.0),
    "links: a rate is -2, it must be above 0": lambda d: d["links"].update(host_pairs=[pair(second_gb_per_s=-2.0)]),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_what_does_not_fit_is_named(problem: str) -> None:
    document = link_run(2).model_dump(mode="json")
    BROKEN[problem](document)
    assert contradiction(Run.model_validate(document)) == problem


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_what_a_phase_measures_fits(count: int) -> None:
    run = link_run(count)
    assert contradiction(run) is None
    assert Run.model_validate_json(run.model_dump_json()) == run

"""The verdict on runs of and looks at two real H200s, healthy and with each fault: what was played is what is found."""

from __future__ import annotations

import pytest

from gpubalance.checks.verdict import Judgement, judge
from tests.reports.helpers import KEPT, kept

FOUND = {
    "h200x1-healthy": ("pass", set()),
    "h200x2-healthy": ("pass", set()),
    "h200x2-slow": ("fail", {"straggler"}),
    "h200x2-sleep": ("fail", {"straggler"}),
    "h200x2-transient": ("warn", {"transient"}),
    "h200x2-memory": ("warn", {"memory_skew"}),
    "h200x2-data": ("warn", {"data_imbalance"}),
}


def judged(name: str) -> Judgement:
    return judge(kept(name))


def test_every_kept_run_has_its_row() -> None:
    assert set(FOUND) == set(KEPT)


@pytest.mark.parametrize("name", FOUND)
def test_what_was_played_is_what_is_found_and_nothing_else(name: str) -> None:
    judgement = judged(name)
    state, wanted = FOUND[name]
    assert judgement.verdict == state
    assert {finding.id for finding in judgement.findings if finding.state in ("warn", "fail", "unknown")} == wanted


@pytest.mark.parametrize(("name", "kind"), [("h200x2-slow", "device time"), ("h200x2-sleep", "host time")])
def test_work_on_the_device_and_a_sleeping_host_are_told_apart(name: str, kind: str) -> None:
    straggler = next(finding for finding in judged(name).findings if finding.id == "straggler")
    assert straggler.subject is not None
    assert straggler.subject.startswith("rank 1 on cuda:1")
    assert [line for line in straggler.evidence if line.startswith(kind)]
    assert [line for line in straggler.evidence if "follows the rank" in line]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("h200x2-slow", "device_work"),
        ("h200x2-sleep", "host"),
        ("h200x2-data", "data_imbalance"),
        ("h200x2-transient", None),
    ],
)
def test_what_was_played_is_the_cause_that_is_named(name: str, cause: str | None) -> None:
    """Recorded before there were stages: the graph of the solo phase tells device from host."""
    first = judged(name).facts.first
    assert first is not None
    assert [(each.rank, each.cause) for each in first.attributions] == [(1, cause)]


@pytest.mark.parametrize("name", ["h200x2-healthy", "h200x2-memory"])
def test_ranks_that_are_not_slow_have_no_cause(name: str) -> None:
    first = judged(name).facts.first
    assert first is not None
    assert (first.attributions, first.pattern) == ((), "healthy")


def test_the_buffers_of_large_collectives_are_not_called_unexplained() -> None:
    memory = judged("h200x2-healthy").facts.memory
    assert [device.unexplained is not None and device.unexplained < 2**28 for device in memory.devices] == [True, True]

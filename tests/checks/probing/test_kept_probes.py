"""The verdict on looks at two real H200s: as they are, and with each thing that was set up to be found."""

from __future__ import annotations

import pytest

from gpubalance.checks.finding import State
from gpubalance.checks.probing.verdict import judge_probe
from gpubalance.record.file import load_record
from gpubalance.record.probe import Probe
from tests.support import ROOT

KEPT = {path.stem: path for path in (ROOT / "examples/probes").glob("*.json")}
FOUND: dict[str, tuple[str, set[str]]] = {
    "h200x2-healthy": ("pass", set()),
    "h200x2-load": ("pass", set()),
    "h200x2-p2p-off": ("warn", {"C5"}),
    "h200x2-rival": ("inconclusive", {"Q1", "U1", "U2"}),
    "h200x2-small-shm": ("warn", {"C1"}),
    "cpu-only": ("inconclusive", {"S2"}),
}


def kept(name: str) -> Probe:
    probe = load_record(KEPT[name])
    assert isinstance(probe, Probe)
    return probe


def test_every_kept_look_has_its_row() -> None:
    assert set(FOUND) == set(KEPT)


@pytest.mark.parametrize("name", FOUND)
def test_what_was_set_up_is_what_is_found_and_nothing_else(name: str) -> None:
    judgement = judge_probe(kept(name))
    verdict, wanted = FOUND[name]
    bad = (State.FAIL, State.WARN, State.UNKNOWN)
    assert judgement.verdict == verdict
    assert {finding.id for finding in judgement.findings if finding.state in bad} == wanted


def test_a_rival_is_left_alone_and_the_other_gpu_worked() -> None:
    load = kept("h200x2-rival").load
    assert load is not None
    assert [(load.devices[r.device], r.stage, r.skipped is None) for r in load.results] == [
        (0, "done", True),
        (1, "start", False),
    ]

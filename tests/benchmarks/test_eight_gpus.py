"""The script for a node with eight GPUs: its budget, its results, and what it makes of measurements made by hand."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpubalance.analysis.facts import attempt_facts
from gpubalance.analysis.links import link_facts
from gpubalance.testing.link_runs import link_run
from gpubalance.testing.runs import make_attempt, steady
from tests.benchmarks import eight_gpus
from tests.benchmarks.eight_gpus import PLAN, RESULTS, TABLE, Step, carry_out, in_process, main
from tests.benchmarks.eight_steps import (
    STEPS,
    WARM,
    Asked,
    LeftOut,
    collectives,
    fitting,
    judged,
    links,
    schedule,
    spread,
)
from tests.benchmarks.error_rates import Pass

ASKED = Asked(out=".", nproc=8, device="auto", passes=10, seed=1, seconds=0.0)


class Clock:
    """A clock that each step moves on by what it takes."""

    def __init__(self, **takes: float) -> None:
        self.at, self.takes, self.limits = 0.0, takes, dict[str, float]()

    def now(self) -> float:
        return self.at

    def play(self, name: str, asked: Asked) -> dict[str, Any]:
        self.limits[name] = asked.seconds
        self.at += min(self.takes.get(name, 0.0), asked.seconds)
        return {"state": "done"}


def test_the_plan_has_every_step_and_all_of_the_budget() -> None:
    assert {step.name for step in PLAN} == set(STEPS) == set(eight_gpus.SAID)
    assert sum(step.share for step in PLAN) == pytest.approx(1.0)


def test_time_that_a_step_does_not_need_goes_to_the_later_ones_and_all_fit_in_the_budget() -> None:
    steps = (Step("bench", 0.5, 1.0), Step("selftest", 0.3, 1.0), Step("links", 0.2, 1.0))
    quick = Clock(bench=20.0, selftest=1e9, links=1e9)
    carry_out(steps, ASKED, 100.0, quick.play, quick.now)
    assert quick.limits == pytest.approx({"bench": 50.0, "selftest": 48.0, "links": 32.0})
    assert quick.at == pytest.approx(100.0)


def test_a_step_that_does_not_fit_is_left_out_with_the_reason_and_the_next_one_may_fit() -> None:
    steps = (Step("bench", 0.9, 10.0), Step("selftest", 0.1, 60.0), Step("data_parallel", 0.0, 0.0))
    clock = Clock(bench=1e9)
    found = carry_out(steps, ASKED, 100.0, clock.play, clock.now)
    assert found["selftest"]["state"] == "left out"
    assert found["selftest"]["reason"] == "10 s of the budget are left, it needs 60 s"
    assert found["data_parallel"]["state"] == "done"


def test_no_step_may_take_more_than_is_left() -> None:
    clock = Clock(**dict.fromkeys(STEPS, 1e9))
    carry_out(PLAN, ASKED, 540.0, clock.play, clock.now)
    assert clock.at <= 540.0


def test_a_step_that_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the step: a shell that starts another process and waits for it for ever."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {tmp_path}/started\nwait\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    found = in_process("bench", replace(ASKED, seconds=1.0))
    assert found == {"state": "ended", "reason": "not done within 1 s"}
    status = Path(f"/proc/{(tmp_path / 'started').read_text().strip()}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()


def test_a_step_that_fails_says_its_last_line(tmp_path: Path) -> None:
    """The bench refuses a device that does not exist, so that no record is left to be read."""
    found = in_process("data_parallel", replace(ASKED, out=str(tmp_path), seconds=100.0))
    assert found == {"state": "left out", "reason": "the bench before it left no record"}
    found = in_process("nonsense", replace(ASKED, seconds=100.0))
    assert found == {"state": "failed", "reason": "exit code 1: KeyError: 'nonsense'"}


def test_results_and_a_table_are_written_and_what_failed_stands_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(name: str, asked: Asked) -> dict[str, Any]:
        if name == "sampling":
            return {"state": "done", "cost": 0.0002, "standard_error": 0.0004, "measurable": False}
        return {"state": "left out", "reason": "too slow"}

    main(["--out", str(tmp_path / "new"), "--steps", "sampling,links"], play)
    document = json.loads((tmp_path / "new" / RESULTS).read_text())
    assert list(document["steps"]) == ["links", "sampling"]
    text = (tmp_path / "new" / TABLE).read_text()
    assert "| links | 0 s | left out: too slow |" in text
    assert "| sampling | 0 s | 0.02 % +- 0.04 %, not measurable |" in text
    assert capsys.readouterr().out == text


def test_changed_passes_stand_between_healthy_ones_and_ranks_are_drawn_from_all() -> None:
    items = schedule(200, 8, seed=1)
    assert len(items) == WARM + 401
    assert {percent for _, percent in items[WARM::2]} == {0.0}
    assert {percent for _, percent in items[WARM + 1 :: 2]} == {10.0}
    assert {rank for rank, percent in items if percent} == set(range(8))


@pytest.mark.parametrize(("seconds", "count"), [(540.0, 10), (184.0, 6), (250.0, 10), (60.0, 1), (10.0, 1)])
def test_changed_passes_are_as_many_as_fit(seconds: float, count: int) -> None:
    """Ten seconds a pass, two that warm, one healthy one before the first, and 20 s for starting and ending."""
    assert fitting(replace(ASKED, seconds=seconds)) == count


def test_what_a_step_had_found_when_it_was_ended_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho \'{"state": "ended", "spread": 0.01}\' > "$5"\nsleep 1000\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    found = in_process("links", replace(ASKED, seconds=1.0))
    assert found == {"state": "ended", "reason": "not done within 1 s", "spread": 0.01}


def played(slow: int | None, percent: float, name: int | None) -> Pass:
    """Eight ranks; the transfer of 20 ms is hidden by nothing."""
    medians = [100.0] * 8
    if name is not None:
        medians[name] = 110.0
    attempt = make_attempt(steady(medians, noise=0.0), overlapped_ms=max(medians) + 20.0)
    return Pass(slow or 0, percent, attempt_facts(attempt, 0.05, 0.10, on_cpu=False))


def test_passes_of_eight_ranks_are_counted_and_their_losses_compared() -> None:
    healthy, alarm = played(None, 0.0, None), played(None, 0.0, 2)
    right, wrong = played(5, 10.0, 5), played(6, 10.0, 5)
    found = judged([healthy, right, healthy, wrong, alarm])
    assert (found["healthy"], found["false_alarms"]) == (3, 1)
    assert [row["right"] for row in found["passes"]] == [True, False]
    assert found["passes"][0]["predicted_loss"] == pytest.approx(1 - 120 / 130)
    assert found["passes"][0]["measured_loss"] == pytest.approx(1 - 120 / 130)


def test_the_spread_of_56_links_confirms_the_cut_off_or_does_not() -> None:
    for share, holds in ((0.975, True), (0.96, False)):
        facts = link_facts(link_run(8, {(2, 5): share}), 0.03)
        assert facts is not None
        (found,) = spread(facts).values()
        assert found["copies"] == 56
        assert found["smallest"] == pytest.approx(share)
        assert found["standard_deviation"] == pytest.approx((1 - share) * (55 / 56 / 56) ** 0.5)
        assert found["cut_off_holds"] is holds


def test_what_cannot_be_measured_here_is_left_out_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(LeftOut, match="not given"):
        collectives(ASKED)
    with pytest.raises(LeftOut, match="none of all_reduce_perf"):
        collectives(replace(ASKED, nccl_tests=str(tmp_path)))
    with pytest.raises(LeftOut, match="no links between CPU ranks"):
        links(replace(ASKED, device="cpu"))
    found = links(replace(ASKED, out=str(tmp_path), nvbandwidth=str(tmp_path / "nvbandwidth")))
    assert found["nvbandwidth"] == f"{tmp_path}/nvbandwidth cannot be started: No such file or directory"

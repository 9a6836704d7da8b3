"""The thresholds that a record was made with."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.record.gates import gates_of, gates_problem
from gpubalance.record.run import Run, Setting
from gpubalance.testing.runs import make_run
from gpubalance.thresholds import Gates


def asking(value: Any, *, on_cpu: bool = False) -> Run:
    settings = {"thresholds": Setting(value=value, origin="flag")}
    return make_run(on_cpu=on_cpu).model_copy(update={"settings": settings})


@pytest.mark.parametrize("run", [make_run(), asking([]), asking(None)], ids=["old", "nothing", "null"])
def test_a_record_that_asks_for_nothing_has_the_defaults(run: Run) -> None:
    assert gates_of(run) == Gates()
    assert gates_problem(run) is None


def test_a_record_has_what_it_asks_for_and_the_gates_of_its_devices() -> None:
    assert gates_of(asking(["limit_warn=70"])) == Gates({"limit_warn": 70.0})
    assert gates_of(asking(["limit_warn=70"], on_cpu=True)) == Gates({"limit_warn": 70.0}, on_cpu=True)


@pytest.mark.parametrize(
    "value",
    [True, 5, "x", "", [None], [5], ["limit_warn"], ["limit_warn=nan"], ["x=1"], ["limit_warn=1", "limit_warn=2"],
     ["\x1b[2J=1"], ["limit_warn=" + "9" * 5000]],
)  # fmt: skip
def test_what_nobody_can_use_is_a_problem_in_words(value: Any) -> None:
    problem = gates_problem(asking(value))
    assert problem is not None
    assert problem.startswith("settings.thresholds: ")
    assert problem.isprintable()
    assert len(problem) < 200

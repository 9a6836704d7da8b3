"""Lines about what a variable costs."""

from __future__ import annotations

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.reports.experiment_lines import experiment_lines
from gpubalance.reports.terminal import report_lines
from gpubalance.testing.runs import make_run
from tests.analysis.test_experiments import experiment


@pytest.mark.parametrize(
    ("on", "off", "line"),
    [
        (
            329.1,
            41.1,
            (
                "all_reduce 1 GiB: 329.1 GB/s with peer-to-peer, 41.1 without: "
                "leaving NCCL_P2P_DISABLE=1 costs a factor of 8.0."
            ),
        ),
        (
            20.0,
            20.2,
            "all_reduce 1 GiB: 20.0 GB/s with peer-to-peer, 20.2 without: NCCL_P2P_DISABLE=1 makes no difference.",
        ),
        (
            10.0,
            20.0,
            (
                "all_reduce 1 GiB: 10.0 GB/s with peer-to-peer, 20.0 without: "
                "here NCCL_P2P_DISABLE=1 gains a factor of 2.0."
            ),
        ),
    ],
)
def test_both_rates_and_what_leaving_the_variable_on_costs(on: float, off: float, line: str) -> None:
    assert experiment_lines(make_run(experiments=[experiment({2**30: on}, {2**30: off})])) == [line]


def test_a_side_without_numbers_says_why_and_what_was_set_before_is_named() -> None:
    whole = experiment({}, {2**30: 41.0})
    arms = [whole.arms[0].model_copy(update={"missing": "it hangs"}), whole.arms[1]]
    run = make_run(experiments=[whole.model_copy(update={"arms": arms, "found": "1"})])
    assert experiment_lines(run) == [
        "NCCL_P2P_DISABLE=0: it hangs.",
        "In this environment NCCL_P2P_DISABLE=1 was found.",
    ]


def test_the_report_shows_them_within_its_width() -> None:
    run = make_run(experiments=[experiment({2**30: 329.0, 2**26: 300.0}, {2**30: 41.0, 2**26: 38.0})])
    text = "\n".join(line.text for line in report_lines(run, judge(run), None))
    assert "all_reduce 1 GiB: 329.0 GB/s with peer-to-peer, 41.0 without: leaving\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_run_without_experiments_has_no_lines() -> None:
    assert experiment_lines(make_run()) == []

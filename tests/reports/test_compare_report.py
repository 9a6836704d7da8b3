"""What compare and baseline print: every number on both sides, 80 columns, nothing that a terminal obeys."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpubalance.analysis.snapshot import saved_run_of
from gpubalance.checks.compare import ComparisonJudgement, judge_comparison, without_baseline
from gpubalance.checks.compare_rules import parse_rule
from gpubalance.checks.verdict import judge
from gpubalance.record.baselines import Baseline, SavedRun, key_of
from gpubalance.record.run import Run
from gpubalance.reports.compare_report import baseline_lines, baseline_text, compare_lines, compare_text
from tests.analysis.compare_helpers import collective, devices, fact, saved, setup
from tests.reports.helpers import HOSTILE, flowing, kept, pair, row


def snapshot(run: Run) -> SavedRun:
    judgement = judge(run)
    return saved_run_of(run, judgement.facts, judgement.verdict.value)


def held(base: list[SavedRun], run: Run, *rules: str, **values: Any) -> ComparisonJudgement:
    return judge_comparison(base, run, judge(run), [parse_rule(rule) for rule in rules], **values)


def texts(judgement: ComparisonJudgement, base: str = "base.json", new: str = "new.json") -> list[str]:
    return [line.text for line in compare_lines(judgement, base, new)]


HEALTHY, SLOW = kept("h200x2-healthy"), kept("h200x2-slow")


def test_the_first_line_is_the_verdict_and_says_all() -> None:
    judged = held([snapshot(HEALTHY)], SLOW)
    first = compare_lines(judged, "base.json", "new.json")[0]
    assert (first.text, first.style) == ("FAIL  rank 1 is 20.5 % slower than it used to be", "fail")


def test_both_sides_and_what_differs_stand_above_the_numbers() -> None:
    lines = texts(held([snapshot(HEALTHY)], SLOW))
    assert lines[2:6] == [
        "BASE  base.json, 2026-11-30T14:16:10+00:00",
        "NEW   new.json, 2026-11-30T14:02:18+00:00",
        "      workloads: collectives, data_parallel, ddp, solo -> ddp, solo",
        "      injected faults: none -> compute:rank=1,percent=20",
    ]


def test_a_row_has_both_values_the_change_and_its_interval() -> None:
    rows = [line.split() for line in texts(held([snapshot(pair(100.0, 100.0))], pair(100.0, 120.0)))]
    assert ["GPU", "1", "100", "120", "+20.0", "%", "+20.0..+20.0"] in rows
    assert ["GPU", "0", "100", "100", "+0.0", "%", "+0.0..+0.0", "same"] in rows
    assert ["the", "run", "100", "85.714", "-14.3", "-14.3..-14.3"] in rows


def test_one_value_on_each_side_is_marked() -> None:
    run = pair(100.0, 100.0, collectives=[row()])
    lines = texts(held([snapshot(run)], run))
    assert "busbw: bus bandwidth, GB/s (more is better)" in lines
    assert "all_reduce 1 GiB 325.37 325.37 +0.0 % - ?" in [" ".join(line.split()) for line in lines]
    assert "?: one value on each side, noise is not known" in lines


def test_a_band_says_of_how_many_runs() -> None:
    base = [snapshot(pair(time, time)) for time in (99.0, 100.0, 101.0)]
    text = flowing(texts(held(base, pair(100.0, 100.0))))
    assert "BASE base.json, 3 runs, 2026" in text
    assert "base: median of 3 runs; interval: distance to their band" in text


def test_values_of_one_side_alone_are_counted() -> None:
    text = flowing(texts(held([snapshot(HEALTHY)], SLOW)))
    assert "on one side only: 18 values of BASE, 0 values of NEW" in text


def test_what_passed_and_was_asked_for_is_shown() -> None:
    run = pair(100.0, 100.0)
    lines = texts(held([snapshot(run)], run, "step:5%"))
    assert "pass    step time is not worse by more than 5 %" in lines
    assert "pass    comparable: the same devices, the same work" in lines


def test_a_share_of_zero_is_not_shown_as_a_number() -> None:
    base = saved(fact("exposed", 0.0), devices=devices("GPU-a", "GPU-b"))
    run = pair(100.0, 100.0)
    rows = [line.split() for line in texts(held([base], run, force=True))]
    assert ["the", "run", "0", "20", "-", "-", "?"] in rows


@pytest.mark.parametrize("required", [False, True])
def test_without_a_baseline_no_verdict_is_shown(required: bool) -> None:
    lines = texts(without_baseline(setup(), required=required))
    assert lines[0].startswith("NOTHING TO COMPARE WITH  no baseline is saved")


def hostile() -> ComparisonJudgement:
    """Text from outside wherever there is some."""
    base = snapshot(pair(100.0, 100.0, injected=[HOSTILE]))
    run = pair(100.0, 120.0, injected=[HOSTILE, HOSTILE])
    names = [device.model_copy(update={"name": HOSTILE}) for device in run.plan.devices]
    node = run.node.model_copy(update={"driver_version": HOSTILE, "environment": {"NCCL_X": HOSTILE}})
    run = run.model_copy(update={"plan": run.plan.model_copy(update={"devices": names}), "node": node})
    return held([base], run, "step:5%", force=True)


@pytest.mark.parametrize(
    "judged",
    [hostile(), held([snapshot(HEALTHY)], SLOW, "step:5%"), held([snapshot(HEALTHY)] * 3, HEALTHY)],
    ids=["hostile", "slow", "the same"],
)
def test_lines_are_printable_and_fit(judged: ComparisonJudgement) -> None:
    lines = [line.text for line in compare_lines(judged, HOSTILE, "new.json")]
    assert all(line.isprintable() for line in lines)
    assert all(len(line) <= 80 or " " not in line.strip() for line in lines)


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


def test_the_document_is_strict_and_the_same_each_time() -> None:
    judged = held([snapshot(HEALTHY)], SLOW, "step:5%")
    document = strict(compare_text(judged, "base.json", "new.json"))
    assert compare_text(judged, "base.json", "new.json") == compare_text(judged, "base.json", "new.json")
    assert (document["base"], document["new"], document["judgement"]["verdict"]) == ("base.json", "new.json", "fail")
    changes = document["judgement"]["comparison"]["changes"]
    assert len(changes) == len(judged.comparison.changes)  # type: ignore[union-attr]
    compute = next(change for change in changes if change["metric"] == "compute" and change["device"] == 1)
    assert compute["change_percent"] == pytest.approx(20.5, abs=0.1)
    assert compute["real"] is True
    gemm = next(change for change in changes if change["metric"] == "gemm")
    assert (gemm["low"], gemm["high"], gemm["real"]) == (None, None, None)


def test_the_document_keeps_collectives_and_hostile_text() -> None:
    document = strict(compare_text(held([snapshot(HEALTHY)], HEALTHY), HOSTILE, "\udcff"))
    assert (document["base"], document["new"]) == (HOSTILE, "\udcff")
    busbw = [change["collective"] for change in document["judgement"]["comparison"]["changes"] if change["collective"]]
    assert busbw[0] == {
        "name": "all_reduce", "mode": "eager", "placement": "in_place", "dtype": "float32", "size_bytes": 8192,
    }  # fmt: skip
    strict(compare_text(hostile(), "a", "b"))


def test_a_document_without_a_baseline() -> None:
    document = strict(compare_text(without_baseline(setup(), required=True), "auto", "new.json"))
    assert document["judgement"]["comparison"] is None
    assert document["judgement"]["findings"][0]["state"] == "unknown"


def baseline(*runs: SavedRun) -> Baseline:
    return Baseline(key_of(runs[0].setup), "default", runs)


def test_a_baseline_shows_its_band() -> None:
    turned = saved(fact("compute", 95.0, device=1), devices=devices("GPU-b", "GPU-a"), started_at="2026-01-02")
    band = baseline(*(saved(fact("compute", value, device=0)) for value in (100.0, 90.0)), turned)
    rows = [line.text.split() for line in baseline_lines([band])]
    assert ["compute", "GPU", "1", "90", "95", "100", "3", "ms"] in rows  # GPU-a is GPU 1 in the newest run
    assert rows[0] == f"{band.key} default: 3 runs, 2026-01-01T00:00:00+00:00 to 2026-01-02".split()


def test_a_baseline_names_every_version_that_it_saw() -> None:
    versions = [{**setup().versions, "driver": driver} for driver in ("570", "580", "570")]
    lines = [line.text for line in baseline_lines([baseline(*(saved(versions=each) for each in versions))])]
    assert "  driver 570 or 580" in lines


def test_baselines_print_safely_and_as_one_document() -> None:
    evil = saved(
        fact("busbw", 1.0, collective=collective(name=HOSTILE)), devices=devices(None, name=HOSTILE),
        workloads=[HOSTILE], versions={"driver": HOSTILE},
    )  # fmt: skip
    both = [baseline(evil), baseline(saved(fact("memory", 4e9, device=0)))]
    assert all(line.text.isprintable() for line in baseline_lines(both))
    document = strict(baseline_text(both))
    assert [each["name"] for each in document["baselines"]] == ["default", "default"]
    assert document["baselines"][1]["runs"][0]["facts"][0]["value"] == 4e9


def test_no_baseline_says_how_to_make_one() -> None:
    assert [line.text for line in baseline_lines([])] == [
        "no baseline is saved; gpubalance baseline save RUN makes one"
    ]
    assert strict(baseline_text([])) == {"schema_version": 1, "baselines": []}

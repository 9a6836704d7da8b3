"""The whole selftest with scripted ranks over CPU slots: real processes, no torch, hand-made measurements."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubalance.checks.selftest.verdict import judge_selftest
from gpubalance.checks.verdict import Verdict
from gpubalance.errors import BusyError, UsageError
from gpubalance.launch.lock import MeasuringLock
from gpubalance.record.file import load_any
from gpubalance.record.selftest import Played, Selftest
from gpubalance.record.selftest_consistency import selftest_contradiction
from gpubalance.reports.document import document_text
from gpubalance.session.selftest import HEALTHY_FIRST, Selftested, selftest
from gpubalance.session.selftest_plan import Here, healthy_passes, matrix, schedule
from gpubalance.settings import CPU_MARGIN, SelftestSettings
from tests.session.selftest_scripts import COMPUTE_MS, Script, crew, healthy_crew, one_pass, truthful
from tests.support import SCRIPTED, write_script

Play = Callable[..., Selftested]
SEED = 3


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """selftest() on two CPU slots with scripted ranks."""
    monkeypatch.setattr("gpubalance.launch.follow.GRACE_S", 0.5)

    def start(script: dict[str, Any], **settings: Any) -> Selftested:
        for name, value in write_script(tmp_path, script).items():
            monkeypatch.setenv(name, value)
        wanted = SelftestSettings(**{"device": "cpu", "force": True, "seed": SEED, "nproc": 2, **settings})
        return selftest(wanted, module=SCRIPTED)

    return start


def planned(*rows: str, ranks: int = 2) -> list[Played]:
    """The passes of the crew that plays the matrix, as the same seed plans them."""
    here = Here(ranks, "gloo", CPU_MARGIN, healthy_ms=COMPUTE_MS)
    found, _ = matrix(here, quick=False, wanted=rows, generator=random.Random(SEED))
    return schedule(found, first=HEALTHY_FIRST, beside=1)


FIRST: Script = healthy_crew(HEALTHY_FIRST)


def test_faults_that_are_named_rightly_pass(play: Play, tmp_path: Path) -> None:
    passes = planned("compute", "backward", "all")
    done = play({"ranks-0": {"*": FIRST}, "ranks-1": truthful(passes)}, rows=("compute", "backward", "all"))
    judgement, record = done.judgement, done.record
    assert judgement.verdict is Verdict.PASS
    assert judgement.sentence == "all 3 faults played here were named rightly, nobody in 6 healthy passes"
    assert [row.row for row in judgement.rows] == ["healthy", "compute_100", "backward", "all"]
    assert record.played == [*healthy_passes(HEALTHY_FIRST, first=0), *passes]
    assert len(record.passes) == len(record.played)
    assert not record.errors
    compute = judgement.outcomes[3]
    assert [named.named_class for named in compute.named] == ["device_work"]
    assert compute.loss.predicted == compute.loss.measured == pytest.approx(1 - 120 / 220)
    assert (judgement.missed.count, judgement.missed.trials) == (0, 2)
    assert (judgement.false_alarms.count, judgement.false_alarms.trials) == (0, 6)
    assert (judgement.others_named.count, judgement.others_named.trials) == (0, 1 + 1 + 2)
    assert (judgement.wrong_class.count, judgement.no_class) == (0, 0)
    assert judgement.largest_difference == pytest.approx(0.0)
    assert judgement.first_cause_s is not None
    path = tmp_path / "saved.json"
    path.write_text(document_text(record, judgement))
    assert load_any(path) == record
    assert judge_selftest(record) == judgement


def test_what_is_judged_says_nothing_of_what_was_played(play: Play) -> None:
    passes = planned("compute")
    record = play({"ranks-0": {"*": FIRST}, "ranks-1": truthful(passes)}, rows=("compute",)).record
    fault = passes[1].faults[0]
    assert fault in record.model_dump_json()
    for each in record.passes:
        run = record.run_of(each)
        assert run.injected == []
        assert set(run.settings) <= {"margin", "thresholds"}
        assert "percent" not in run.model_dump_json(exclude={"node", "plan", "samples"})


def test_each_pass_has_the_samples_of_its_own_time_only(play: Play) -> None:
    waiting = ["wait_more", "sensor.jsonl", '"sample"', 2]
    first = crew([one_pass(0), [waiting], one_pass(1)])
    slow = [*one_pass(1)[:-1], waiting, one_pass(1)[-1]]
    record = play(
        {"ranks-0": {"*": first}, "ranks-1": {"*": crew([one_pass(0), slow, one_pass(2)])}}, rows=("all",)
    ).record
    spans = [(each.begin_s, each.end_s) for each in record.passes]
    for each, (begin, end) in zip(record.passes, spans, strict=True):
        assert all(begin <= t_s <= end for t_s in each.samples.t_s)
        assert each.samples.health is not None
    assert len(record.passes[3].samples.t_s) >= 1
    assert record.sensor is not None
    assert record.sensor.ticks >= sum(len(each.samples.t_s) for each in record.passes)


def test_a_wrong_row_is_played_once_more_and_right_then(play: Play) -> None:
    passes = planned("compute", "backward")
    again = schedule_again(passes, "backward")
    blind = truthful(
        [played if played.row != "backward" else played.model_copy(update={"ranks": []}) for played in passes]
    )
    done = play({"ranks-0": {"*": FIRST}, "ranks-1": blind, "ranks-2": truthful(again)}, rows=("compute", "backward"))
    assert done.judgement.verdict is Verdict.PASS
    assert "(1 only at the second look)" in done.judgement.sentence
    looks = [outcome for outcome in done.judgement.outcomes if outcome.row == "backward"]
    assert [(look.again, look.right) for look in looks] == [(False, False), (True, True)]
    assert looks[0].ranks == looks[1].ranks
    assert (done.judgement.missed.count, done.judgement.missed.trials) == (1, 2)
    assert {info.attempt for info in done.record.ranks} == {0, 1, 2}


def test_rows_are_judged_before_the_second_look_with_all_that_the_sensor_saw(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Selftest] = []

    def remember(record: Selftest) -> tuple[Played, ...]:
        judged.append(record)
        return ()

    monkeypatch.setattr("gpubalance.session.selftest.wrong_passes", remember)
    waiting = ["wait_more", "sensor.jsonl", '"sample"', 2]
    first = [*one_pass(0)[:-1], waiting, one_pass(0)[-1]]
    script = {"ranks-0": {"*": crew([first, one_pass(1)])}, "ranks-1": {"*": healthy_crew(1)}}
    play(script, rows=("rival",))
    assert len(judged[0].passes[0].samples.t_s) >= 1


def schedule_again(passes: list[Played], row: str) -> list[Played]:
    """The crew that looks again: the row between two healthy passes."""
    healthy, wrong = passes[0], next(played for played in passes if played.row == row)
    return [healthy, wrong, healthy]


def test_a_row_that_stays_wrong_fails_and_both_looks_are_kept(play: Play) -> None:
    passes = planned("compute")
    victim = truthful([played.model_copy(update={"ranks": [1 - rank for rank in played.ranks]}) for played in passes])
    done = play({"ranks-0": {"*": FIRST}, "ranks-1": victim, "ranks-2": victim}, rows=("compute",))
    assert done.judgement.verdict is Verdict.FAIL
    stranger = 1 - passes[1].ranks[0]
    reason = f"named rank {stranger}, on which nothing was played"
    assert done.judgement.sentence == f"1 of 2 rows are wrong; compute +100 %: {reason}"
    assert [outcome.reason for outcome in done.judgement.outcomes if outcome.row != "healthy"] == [reason, reason]
    assert (done.judgement.others_named.count, done.judgement.others_named.trials) == (1, 1)
    assert done.judgement.missed.count == 1


def test_a_false_alarm_is_looked_at_again_with_healthy_passes_and_stays_in_the_rate(play: Play) -> None:
    passes = planned("compute")
    noisy = passes[0].model_copy(update={"row": "sleep", "ranks": [0]})
    scripts = truthful([noisy, *passes[1:]])
    done = play({"ranks-0": {"*": FIRST}, "ranks-1": scripts, "ranks-2": {"*": healthy_crew(1)}}, rows=("compute",))
    assert (done.judgement.false_alarms.count, done.judgement.false_alarms.trials) == (1, 4)
    healthy = next(row for row in done.judgement.rows if row.row == "healthy")
    assert (healthy.right_at_once, healthy.passes, healthy.right, healthy.looked_again) == (3, 4, True, True)


def test_a_rank_that_dies_leaves_what_was_measured_and_no_verdict(play: Play) -> None:
    passes = planned("compute")
    scripts = truthful(passes)
    scripts["1"] = [*crew([one_pass(0)])[:-1], ["event", "pass_begin", {"number": 1}], ["kill", int(signal.SIGKILL)]]
    done = play({"ranks-0": {"*": FIRST}, "ranks-1": scripts}, rows=("compute",))
    assert done.judgement.verdict is Verdict.INCONCLUSIVE
    assert done.judgement.sentence.startswith("rank 1 killed by SIGKILL")
    assert [each.number for each in done.record.passes] == [0, 1, 2]
    assert selftest_contradiction(done.record) is None


def test_a_first_crew_that_fails_ends_it(play: Play) -> None:
    done = play({"ranks-0": {"0": FIRST, "1": [["phase", "passes"], ["raise", "no"]]}})
    assert done.judgement.verdict is Verdict.INCONCLUSIVE
    assert "RuntimeError: no" in done.judgement.sentence
    assert done.record.passes == []
    assert len(done.record.played) == HEALTHY_FIRST


def test_one_device_plays_nothing_and_starts_no_rank(play: Play) -> None:
    done = play({}, nproc=1)
    assert done.judgement.verdict is Verdict.INCONCLUSIVE
    assert "one device" in done.judgement.sentence
    assert done.record.ranks == []
    assert len(done.record.skipped) == 14


def test_rows_that_cannot_be_played_here_leave_no_verdict(play: Play) -> None:
    done = play({"ranks-0": {"*": FIRST}, "ranks-1": {"*": healthy_crew(1)}}, rows=("rival",))
    assert done.judgement.verdict is Verdict.INCONCLUSIVE
    assert [(skip.what, skip.reason) for skip in done.record.skipped] == [("rival", "it needs GPUs")]


def test_a_matrix_played_several_times_and_further_healthy_passes(play: Play) -> None:
    here = Here(2, "gloo", CPU_MARGIN, healthy_ms=COMPUTE_MS)
    generator = random.Random(SEED)
    passes: list[Played] = []
    for turn in range(3):
        rows, _ = matrix(here, quick=False, wanted=("compute", "backward"), generator=generator)
        if turn:
            generator.shuffle(rows)
        passes += schedule(rows, first=HEALTHY_FIRST + len(passes), beside=1)
    passes += healthy_passes(2, first=HEALTHY_FIRST + len(passes))
    script = {"ranks-0": {"*": FIRST}, "ranks-1": truthful(passes)}
    done = play(script, rows=("compute", "backward"), repeat=3, healthy=2)
    assert done.record.played[HEALTHY_FIRST:] == passes
    assert [(row.row, row.passes, row.right_at_once) for row in done.judgement.rows] == [
        ("healthy", 13, 13), ("compute_100", 3, 3), ("backward", 3, 3),
    ]  # fmt: skip
    assert done.judgement.verdict is Verdict.PASS


def test_a_seed_that_nobody_gave_is_drawn_and_recorded(play: Play) -> None:
    script = {"ranks-0": {"*": FIRST}, "ranks-1": {"*": healthy_crew(1)}}
    seeds = {play(script, rows=("rival",), seed=None).record.seed for _ in range(2)}
    assert len(seeds) == 2


def test_a_row_that_there_is_not_is_wrong_use_before_anything_starts(play: Play) -> None:
    with pytest.raises(UsageError, match="row 'heat' is not known"):
        play({}, rows=("compute", "heat"))


def test_it_does_not_measure_beside_another_measurement(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubalance.launch.lock._NAME", f"\0gpubalance-test-{os.getpid()}")
    lock = MeasuringLock()
    lock.acquire(force=False)
    try:
        with pytest.raises(BusyError, match="another gpubalance"):
            play({}, force=False)
    finally:
        lock.release()

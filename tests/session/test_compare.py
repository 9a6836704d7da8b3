"""Where the earlier runs come from, and which runs may become a baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubalance.checks.finding import State
from gpubalance.checks.verdict import Verdict, judge
from gpubalance.errors import UsageError
from gpubalance.record.baselines import all_baselines
from gpubalance.record.run import Run, Setting
from gpubalance.reports.document import document_text
from gpubalance.session.compare import (
    against_baseline,
    check_base,
    compare,
    earlier_runs,
    save_runs,
    slower_than_before,
)
from gpubalance.testing.runs import make_attempt, make_run, steady
from tests.reports.helpers import KEPT, pair
from tests.support import ROOT


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def file(folder: Path, run: Run, name: str = "run") -> Path:
    path = folder / f"{name}.json"
    path.write_text(document_text(run, judge(run)))
    return path


def numbered(run: Run, number: int) -> Run:
    return run.model_copy(update={"run_id": f"run {number}"})


def test_a_file_against_a_file(tmp_path: Path, state: dict[str, str]) -> None:
    base = file(tmp_path, pair(100.0, 100.0), "base")
    judged, label = compare(str(base), file(tmp_path, pair(100.0, 120.0)), [], state)
    assert judged.verdict is Verdict.FAIL
    assert label == str(base)
    assert all_baselines(tmp_path / "state/gpubalance") == []


def test_auto_is_the_baseline_of_the_same_devices_and_work(tmp_path: Path, state: dict[str, str]) -> None:
    runs = [numbered(pair(time, time), number) for number, time in enumerate((99.0, 100.0, 101.0))]
    saved = save_runs([file(tmp_path, run, run.run_id) for run in runs], "default", state)
    assert [each.runs for each in saved] == [1, 2, 3]
    assert len({each.key for each in saved}) == 1
    judged, label = compare("auto", file(tmp_path, pair(100.5, 100.5)), [], state)
    assert judged.comparison is not None
    assert judged.comparison.runs == 3
    assert {change.real for change in judged.comparison.changes} == {False}
    assert (judged.verdict, label) == (Verdict.PASS, "baseline default")


def test_a_baseline_by_its_name(tmp_path: Path, state: dict[str, str]) -> None:
    path = file(tmp_path, pair(100.0, 100.0))
    save_runs([path], "before-update", state)
    assert compare("auto", path, [], state)[0].comparison is None
    assert compare("auto:before-update", path, [], state)[0].verdict is Verdict.PASS


def test_other_devices_have_no_baseline(tmp_path: Path, state: dict[str, str]) -> None:
    save_runs([file(tmp_path, pair(100.0, 100.0))], "default", state)
    judged, _ = compare("auto", file(tmp_path, pair(*[100.0] * 4)), [], state)
    assert judged.comparison is None
    assert [finding.state for finding in judged.findings] == [State.INFO]
    required, _ = compare("auto", file(tmp_path, pair(*[100.0] * 4)), [], state, require_baseline=True)
    assert [(finding.state, finding.required) for finding in required.findings] == [(State.UNKNOWN, True)]


def test_without_a_state_folder_there_is_no_baseline_and_none_can_be_saved(tmp_path: Path) -> None:
    path = file(tmp_path, pair(100.0, 100.0))
    assert compare("auto", path, [], {})[0].comparison is None
    with pytest.raises(UsageError, match="no folder"):
        save_runs([path], "default", {})


REFUSED = {
    "injected": (pair(100.0, 100.0, injected=["sleep:rank=1,ms=5"]), "a fault was injected"),
    "interrupted": (pair(100.0, 100.0, interrupted_by=2), "signal 2 ended it"),
    "no verdict": (make_run([make_attempt(steady([100.0, 100.0], blocks=4))]), "it has no verdict"),
    "nothing measured": (make_run([]), "it has no verdict"),
    "no UUID": (
        pair(100.0, 100.0).model_copy(
            update={
                "plan": pair(100.0, 100.0).plan.model_copy(
                    update={"devices": [d.model_copy(update={"uuid": None}) for d in pair(1.0, 1.0).plan.devices]}
                )
            }
        ),
        "has no UUID",
    ),
}


@pytest.mark.parametrize(("run", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_stand_for_the_node_is_refused_and_nothing_is_saved(
    tmp_path: Path, state: dict[str, str], run: Run, why: str
) -> None:
    good, bad = file(tmp_path, pair(100.0, 100.0), "good"), file(tmp_path, run, "bad")
    with pytest.raises(UsageError, match=why) as caught:
        save_runs([good, bad], "default", state)
    assert str(bad) in caught.value.message
    assert all_baselines(tmp_path / "state/gpubalance") == []


@pytest.mark.parametrize("name", [name for name in KEPT if not name.endswith("healthy")])
def test_real_runs_with_a_fault_are_refused(state: dict[str, str], name: str) -> None:
    with pytest.raises(UsageError, match="injected"):
        save_runs([KEPT[name]], "default", state)


def test_a_look_is_no_baseline_and_nothing_to_compare(tmp_path: Path, state: dict[str, str]) -> None:
    probe = ROOT / "examples/probes/h200x2-healthy.json"
    with pytest.raises(UsageError, match="not a bench run"):
        save_runs([probe], "default", state)
    with pytest.raises(UsageError, match="not a bench run"):
        compare(str(probe), file(tmp_path, pair(100.0, 100.0)), [], state)


def test_a_run_that_failed_is_saved_as_such(tmp_path: Path, state: dict[str, str]) -> None:
    (saved,) = save_runs([file(tmp_path, pair(100.0, 120.0))], "default", state)
    assert saved.verdict is Verdict.FAIL


@pytest.mark.parametrize("name", ["a/b", "..", ""])
def test_a_name_that_is_none_is_refused(tmp_path: Path, state: dict[str, str], name: str) -> None:
    path = file(tmp_path, pair(100.0, 100.0))
    for call in (lambda: save_runs([path], name, state), lambda: compare(f"auto:{name}", path, [], state)):
        with pytest.raises(UsageError, match="no name"):
            call()


def test_a_base_is_checked_before_anything_is_measured(tmp_path: Path) -> None:
    check_base("auto")
    check_base("auto:before-update")
    check_base(str(file(tmp_path, pair(100.0, 100.0))))
    for wrong in ("auto:a/b", str(tmp_path / "none.json")):
        with pytest.raises(UsageError):
            check_base(wrong)


def test_a_damaged_baseline_does_not_cost_the_run(tmp_path: Path, state: dict[str, str]) -> None:
    run = pair(100.0, 100.0)
    save_runs([file(tmp_path, run)], "default", state)
    (path,) = (tmp_path / "state").rglob("*/default/*.json")
    path.write_text("{")
    judged = judge(against_baseline("auto", run, judge(run), state))
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.facts == judge(run).facts
    with pytest.raises(UsageError, match="damaged"):
        earlier_runs("auto", run, state)


@pytest.mark.parametrize(("required", "verdict"), [(False, Verdict.PASS), (True, Verdict.INCONCLUSIVE)])
def test_a_bench_without_a_baseline(state: dict[str, str], required: bool, verdict: Verdict) -> None:
    run = pair(100.0, 100.0)
    assert judge(against_baseline("auto", run, judge(run), state, required=required)).verdict is verdict


SLOWNESS = {
    "as before": (pair(100.0, 100.0), False),
    "faster": (pair(80.0, 80.0), False),
    "a warning, at the margin that fails and the 2 % of clocks": (pair(112.0, 112.0), False),
    "all above it": (pair(112.1, 112.1), True),
    "one above it": (pair(100.0, 112.1), True),
    "under wider margins": (
        pair(112.1, 112.1, settings={"margin": Setting(value=[0.1, 0.2], origin="flag")}), False,
    ),
    "too few blocks to tell": (make_run([make_attempt(steady([150.0, 150.0], blocks=3))]), False),
    "no pass yet": (make_run(), False),
    "other devices": (pair(*[150.0] * 4), False),
}  # fmt: skip


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize(("run", "doubted"), SLOWNESS.values(), ids=SLOWNESS.keys())
def test_a_first_pass_is_doubted_when_a_second_one_could_fail_it(
    tmp_path: Path, state: dict[str, str], run: Run, doubted: bool, auto: bool
) -> None:
    path = file(tmp_path, pair(100.0, 100.0))
    save_runs([path], "default", state)
    assert slower_than_before("auto" if auto else str(path), run, state) is doubted


def test_nothing_is_doubted_without_a_baseline_that_can_be_read(tmp_path: Path, state: dict[str, str]) -> None:
    slow = pair(150.0, 150.0)
    assert not slower_than_before("auto", slow, state)
    assert not slower_than_before("auto", slow, {})
    save_runs([file(tmp_path, pair(100.0, 100.0))], "default", state)
    assert slower_than_before("auto", slow, state)
    (damaged,) = (tmp_path / "state").rglob("baselines/*/default/*.json")
    damaged.write_text("{")
    assert not slower_than_before("auto", slow, state)

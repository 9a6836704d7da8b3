"""Exit codes in the style of monitoring plugins, and what no verdict counts as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpubalance.checks.verdict import Verdict, judge
from gpubalance.cli import bench_run, entry, probe_run
from gpubalance.cli.output import Exits, exit_code_after, exit_code_of, exit_code_of_verdict, failing, measuring
from gpubalance.errors import BusyError, CannotMeasureError, GpubalanceError, Interrupted, UsageError
from gpubalance.testing.profiles import h200_node
from tests.checks.probing.test_kept_probes import KEPT as KEPT_PROBES
from tests.reports.helpers import KEPT, pair

NAGIOS = Exits("nagios")
PASS, WARN, FAIL, NONE = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.INCONCLUSIVE

CODES = [
    # verdict, --fail-on, plain, nagios
    (PASS, "fail", 0, 0), (PASS, "warn", 0, 0), (PASS, "never", 0, 0),
    (WARN, "fail", 0, 1), (WARN, "warn", 1, 2), (WARN, "never", 0, 0),
    (FAIL, "fail", 1, 2), (FAIL, "warn", 1, 2), (FAIL, "never", 0, 0),
    (NONE, "fail", 3, 3), (NONE, "warn", 3, 3), (NONE, "never", 3, 3),
]  # fmt: skip


@pytest.mark.parametrize(("verdict", "fail_on", "plain", "nagios"), CODES)
def test_each_verdict_has_its_code_in_each_style(verdict: Verdict, fail_on: str, plain: int, nagios: int) -> None:
    assert exit_code_of_verdict(verdict, fail_on) == plain
    assert exit_code_of_verdict(verdict, fail_on, NAGIOS) == nagios


@pytest.mark.parametrize(
    ("style", "on_no_verdict", "code"),
    [("plain", None, 3), ("plain", "fail", 1), ("plain", "pass", 0),
     ("nagios", None, 3), ("nagios", "fail", 2), ("nagios", "pass", 0)],
)  # fmt: skip
def test_no_verdict_counts_as_asked_also_when_nothing_could_be_measured(
    style: str, on_no_verdict: str | None, code: int
) -> None:
    exits = Exits(style, on_no_verdict)
    assert exit_code_of_verdict(NONE, "fail", exits) == code
    for error in (CannotMeasureError("the driver does not answer"), BusyError("somebody measures here")):
        with pytest.raises(GpubalanceError) as caught, measuring(exits):
            raise error
        assert caught.value.exit_code == code


@pytest.mark.parametrize("on_no_verdict", ["fail", "pass"])
@pytest.mark.parametrize(("verdict", "code"), [(PASS, 0), (WARN, 0), (FAIL, 1)])
def test_a_verdict_is_none_of_its_business(verdict: Verdict, code: int, on_no_verdict: str) -> None:
    assert exit_code_of_verdict(verdict, "fail", Exits("plain", on_no_verdict)) == code


FAILURES = [(UsageError("no"), 2, 3), (Interrupted(2), 130, 3), (CannotMeasureError("no"), 3, 3)]


@pytest.mark.parametrize(("error", "plain", "nagios"), FAILURES, ids=["wrong use", "a signal", "not measured"])
def test_what_is_no_verdict_is_never_critical_to_nagios(error: GpubalanceError, plain: int, nagios: int) -> None:
    for exits, code in ((Exits(), plain), (NAGIOS, nagios)):
        with pytest.raises(GpubalanceError) as caught, failing(exits):
            raise error
        assert caught.value.exit_code == code


def test_an_interrupted_run_is_unknown_to_nagios() -> None:
    run = pair(100.0, 120.0, interrupted_by=2)
    assert exit_code_of(run, judge(run), "fail") == 130
    assert exit_code_of(run, judge(run), "fail", NAGIOS) == 3


@pytest.mark.parametrize(("code", "after"), [(0, 3), (1, 1), (2, 2), (3, 3), (130, 130)])
def test_only_a_pass_is_taken_back_when_something_was_lost(code: int, after: int) -> None:
    assert exit_code_after(code, lost=True) == after
    assert exit_code_after(code, lost=False) == code


@pytest.mark.parametrize("flags", [("--exit-style", "zabbix"), ("--on-no-verdict", "warn")])
@pytest.mark.parametrize("command", [("bench",), ("probe",), ("report", str(KEPT["h200x2-slow"]))])
def test_words_that_are_not_known_are_wrong_use(command: tuple[str, ...], flags: tuple[str, ...]) -> None:
    assert entry.run([*command, *flags]) == 2


def driver(folder: Path, **values: Any) -> str:
    path = folder / "driver.json"
    path.write_text(json.dumps({**h200_node(), **values}))
    return str(path)


def fault(call: str, **values: Any) -> dict[str, Any]:
    return {"faults": [{"call": call, **values}]}


PROBES: dict[str, tuple[tuple[str, ...], dict[str, Any], int]] = {
    "healthy": ((), {}, 0),
    "a warning": ((), fault("nvmlDeviceGetPersistenceMode", value=0), 1),
    "an uncorrected error": ((), fault("nvmlDeviceGetTotalEccErrors", device=1, value=7), 2),
    "a required answer that is refused": ((), fault("nvmlDeviceGetRemappedRows", error=4), 3),
    "the same, failing": (("--on-no-verdict", "fail"), fault("nvmlDeviceGetRemappedRows", error=4), 2),
    "the same, passing": (("--on-no-verdict", "pass"), fault("nvmlDeviceGetRemappedRows", error=4), 0),
    "wrong use": (("--only", "Z1"), {}, 3),
}


@pytest.mark.parametrize(("flags", "values", "code"), PROBES.values(), ids=PROBES.keys())
def test_probe_as_a_plugin(tmp_path: Path, flags: tuple[str, ...], values: dict[str, Any], code: int) -> None:
    assert entry.run(["probe", "--simulate", driver(tmp_path, **values), "--exit-style", "nagios", *flags]) == code


@pytest.mark.parametrize(
    ("flags", "code"), [((), 3), (("--on-no-verdict", "fail"), 1), (("--on-no-verdict", "pass"), 0)]
)
def test_a_machine_that_is_in_use_counts_as_asked(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], code: int
) -> None:
    def busy(*_: Any) -> None:
        raise BusyError("another gpubalance is measuring here")

    monkeypatch.setattr(bench_run, "bench", busy)
    monkeypatch.setattr(probe_run, "probe", busy)
    assert entry.run(["bench", *flags]) == code
    assert entry.run(["probe", *flags]) == code


def test_an_output_that_cannot_be_written_never_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    assert entry.run(["probe", "--simulate", "h200x2", "--on-no-verdict", "pass"]) == 3


REPORTS = {
    "fail": (KEPT["h200x2-slow"], (), 2),
    "no verdict": (KEPT_PROBES["h200x2-rival"], (), 3),
    "no verdict that passes": (KEPT_PROBES["h200x2-rival"], ("--on-no-verdict", "pass"), 0),
    "warn": (KEPT_PROBES["h200x2-p2p-off"], (), 1),
    "pass": (KEPT["h200x2-healthy"], (), 0),
    "not there": (Path("/nowhere/run.json"), (), 3),
}


@pytest.mark.parametrize("to", ["terminal", "json", "nagios"])
@pytest.mark.parametrize(("path", "flags", "code"), REPORTS.values(), ids=REPORTS.keys())
def test_a_saved_record_as_a_plugin(path: Path, flags: tuple[str, ...], code: int, to: str) -> None:
    assert entry.run(["report", str(path), "--to", to, "--exit-style", "nagios", *flags]) == code


def test_bench_hands_its_flags_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def run_bench(_settings: Any, **values: Any) -> int:
        seen.update(values)
        return 0

    monkeypatch.setattr(bench_run, "run_bench", run_bench)
    assert entry.run(["bench", "--exit-style", "nagios", "--on-no-verdict", "fail"]) == 0
    assert seen["exits"] == Exits("nagios", "fail")

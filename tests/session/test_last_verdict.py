"""What is kept for `gpubalance verdict`, and what never is."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from gpubalance.checks.probing.verdict import judge_probe
from gpubalance.checks.verdict import judge
from gpubalance.record.file import load_record
from gpubalance.record.history import LastVerdict, load_last_verdicts
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run, Setting
from gpubalance.session.last_verdict import remember_probe, remember_run
from gpubalance.testing.runs import make_gpu, make_node
from tests.reports.helpers import kept, pair
from tests.support import ROOT


def kept_verdicts(home: Path) -> list[LastVerdict]:
    return load_last_verdicts(home, socket.gethostname())


def remembered(home: Path, run: Run, code: int = 0) -> bool:
    return remember_run(home, run, judge(run), code, "run.json")


def test_a_real_run_is_kept_with_its_verdict(tmp_path: Path) -> None:
    run = pair(100.0, 120.0)
    assert remembered(tmp_path, run, 1)
    assert kept_verdicts(tmp_path) == [
        LastVerdict(
            kind="bench",
            hostname=socket.gethostname(),
            run_id=run.run_id,
            ended_at="2026-01-01T00:00:30.000+00:00",
            verdict="fail",
            sentence=judge(run).sentence,
            exit_code=1,
            scope=None,
            record=str(Path.cwd() / "run.json"),
            gpubalance_version="0.1.0",
        )
    ]


NOT_KEPT = {
    "a fault was played": pair(100.0, 100.0, injected=["sleep:rank=1,ms=5"]),
    "a signal ended it": pair(100.0, 100.0, interrupted_by=15),
    "the CPU of a GPU node": pair(100.0, 100.0).model_copy(
        update={"plan": pair(100.0, 100.0).plan.model_copy(update={"backend": "gloo"})}
    ),
    "a fault in a real run": kept("h200x2-slow"),
}


@pytest.mark.parametrize("run", NOT_KEPT.values(), ids=NOT_KEPT.keys())
def test_what_says_nothing_of_the_node_leaves_the_older_verdict(tmp_path: Path, run: Run) -> None:
    assert remembered(tmp_path, pair(100.0, 100.0))
    before = kept_verdicts(tmp_path)
    assert not remembered(tmp_path, run)
    assert kept_verdicts(tmp_path) == before


def test_a_cpu_run_where_there_is_no_gpu_is_kept(tmp_path: Path) -> None:
    run = pair(100.0, 100.0, node=make_node([]))
    assert remembered(tmp_path, run.model_copy(update={"plan": run.plan.model_copy(update={"backend": "gloo"})}))


def test_a_run_on_some_of_the_gpus_says_so(tmp_path: Path) -> None:
    remembered(tmp_path, pair(100.0, 100.0, node=make_node([make_gpu(index) for index in range(8)])))
    assert [last.scope for last in kept_verdicts(tmp_path)] == ["2 of 8 GPUs"]


def looked(**values: Any) -> Probe:
    probe = load_record(ROOT / "examples/probes/h200x2-healthy.json")
    assert isinstance(probe, Probe)
    return probe.model_copy(update=values)


def test_a_probe_is_kept_beside_the_bench(tmp_path: Path) -> None:
    remembered(tmp_path, pair(100.0, 100.0))
    probe = looked()
    assert remember_probe(tmp_path, probe, judge_probe(probe), 0, None)
    kinds = {last.kind: (last.run_id, last.scope, last.record) for last in kept_verdicts(tmp_path)}
    assert kinds["probe"] == (probe.probe_id, None, None)
    assert set(kinds) == {"bench", "probe"}


def test_a_simulated_probe_is_never_kept(tmp_path: Path) -> None:
    probe = looked(simulated="h200x2")
    assert not remember_probe(tmp_path, probe, judge_probe(probe), 0, None)
    assert kept_verdicts(tmp_path) == []


def test_a_probe_of_some_checks_says_so(tmp_path: Path) -> None:
    probe = looked(settings={**looked().settings, "only": Setting(value=["S2"], origin="flag")})
    assert remember_probe(tmp_path, probe, judge_probe(probe), 0, None)
    assert [last.scope for last in kept_verdicts(tmp_path)] == ["some checks were left out by --only"]

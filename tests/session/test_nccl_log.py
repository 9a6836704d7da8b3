"""NCCL's log in a pass of its own: which job, when it runs, and what becomes of it. Ranks are scripted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubalance.launch.collect import Measured
from gpubalance.session.bench import Finished, bench
from gpubalance.session.nccl_log import logging_job, read_logs, why_not_logged
from gpubalance.settings import BenchSettings
from gpubalance.testing.profiles import h200_node
from tests.support import SCRIPTED, make_job, write_script

CHANNEL = "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
CHOICE = "AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}"


def row(busbw: float = 329.0) -> dict[str, Any]:
    return {
        "collective": "all_reduce", "backend": "nccl", "mode": "eager", "ranks": 2, "size_bytes": 2**30,
        "dtype": "float32", "iterations": 20, "time_us": 3300.0, "time_max_us": 3300.0,
        "algorithm_bandwidth_gb_per_s": busbw, "bus_bandwidth_gb_per_s": busbw, "wrong_elements": 0,
    }  # fmt: skip


def measured(busbw: float) -> list[list[Any]]:
    return [["phase", "collectives"], ["event", "collective", row(busbw)], ["end"]]


def logged(*lines: str) -> list[list[Any]]:
    return [["phase", "nccl_log"], *(["print", f"vm:1:1 [0] NCCL INFO {line}"] for line in lines), ["end"]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finished]:
    """bench() on two stand-in H200s."""
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)

    def start(busbw: float = 329.0, *, log: list[list[Any]] | None = None, **settings: Any) -> Finished:
        script = {"ranks-0": {"*": measured(busbw)}, "ranks-2": {"*": log or logged(CHANNEL, CHOICE)}}
        for name, value in write_script(tmp_path, script).items():
            monkeypatch.setenv(name, value)
        profile = tmp_path / "profile.json"
        profile.write_text(json.dumps(h200_node()))
        finished = bench(BenchSettings(force=True, **settings), None, None, module=SCRIPTED, stand_in=profile)
        assert finished is not None
        assert not finished.run.errors
        return finished

    return start


def reason_of(finished: Finished) -> str | None:
    return next((skip.reason for skip in finished.run.skipped if skip.what == "NCCL's log"), None)


def test_where_the_links_are_the_question_the_log_is_read(run: Callable[..., Finished]) -> None:
    finished = run(workloads=("collectives",))
    facts = finished.run.nccl
    assert facts is not None
    assert [(way.sender, way.receiver, way.via) for way in facts.transports] == [(0, 1, "P2P/CUMEM")]
    assert [(choice.algorithm, choice.size_bytes) for choice in facts.choices] == [("Ring", 2**30)]
    assert [phase.name for phase in finished.run.phases] == ["collectives", "nccl_log"]
    (busbw,) = [finding for finding in finished.judgement.findings if finding.id == "busbw"]
    assert busbw.evidence[0] == "NCCL's log: Ring, Simple on 24 channels"


def test_beside_training_it_is_read_only_when_a_bandwidth_is_too_low(run: Callable[..., Finished]) -> None:
    quiet = run(workloads=("solo", "collectives"))
    assert quiet.run.nccl is None
    assert reason_of(quiet) == "no bandwidth is below its gate"
    low = run(120.0, workloads=("solo", "collectives"))
    assert low.run.nccl is not None
    assert low.judgement.verdict.value == "fail"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("NCCL_DEBUG", "WARN", "NCCL_DEBUG=WARN is set, which does not tell it"),
        ("NCCL_DEBUG_FILE", "/var/log/nccl.%p", "NCCL_DEBUG_FILE is set, so that NCCL's log goes there"),
    ],
)
def test_what_the_user_set_counts(
    run: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(name, value)
    finished = run(workloads=("collectives",))
    assert (finished.run.nccl, reason_of(finished)) == (None, reason)


def test_a_log_without_a_line_of_nccl_is_said(run: Callable[..., Finished]) -> None:
    finished = run(log=[["phase", "nccl_log"], ["end"]], workloads=("collectives",))
    assert (finished.run.nccl, reason_of(finished)) == (None, "NCCL wrote no line into it")


def test_variables_are_added_and_none_is_replaced(tmp_path: Path) -> None:
    job = make_job(tmp_path, environment={"A": "1"}, faults=({"kind": "sleep"},))
    made = logging_job(job, {"NCCL_DEBUG": "info", "NCCL_DEBUG_SUBSYS": ""})
    assert made.environment == {
        "A": "1",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING,NET,NVLS,COLL",
        "NCCL_DEBUG_FILE": f"{tmp_path}/nccl-2.%p.log",
    }
    assert (made.attempt, made.phases, made.faults) == (2, ("nccl_log",), ())
    assert why_not_logged({"NCCL_DEBUG": "info"}) is None
    assert why_not_logged({"NCCL_DEBUG": "TRACE", "NCCL_DEBUG_FILE": ""}) is None


def test_logs_of_all_ranks_are_read_and_bytes_that_are_no_text_too(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (tmp_path / "nccl-2.11.log").write_bytes(f"vm:1:1 [0] NCCL INFO {CHANNEL}\n\xff\xfe".encode("latin-1"))
    (tmp_path / "nccl-2.12.log").write_text(f"vm:2:1 [1] NCCL INFO {CHANNEL.replace('0[0] -> 1[1]', '1[1] -> 0[0]')}\n")
    facts = read_logs(job, Measured())
    assert facts is not None
    assert len(facts.transports) == 2

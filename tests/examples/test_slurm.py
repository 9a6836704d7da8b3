"""The Slurm scripts against commands that play Slurm and gpubalance."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpubalance.checks.finding import State
from gpubalance.checks.probing.verdict import CHECKS
from gpubalance.checks.verdict import Verdict
from tests.examples.helpers import EXAMPLES, Stage, found, probe_document
from tests.support import ROOT, command_environment

HEALTH = EXAMPLES / "slurm/gpubalance-health"
PROLOG = EXAMPLES / "slurm/gpubalance-prolog"

HEALTHY = probe_document(Verdict.PASS)
BROKEN = probe_document(
    Verdict.FAIL,
    found("M2", State.FAIL, "GPU 3 has 2 uncorrected ECC errors"),
    found("M5", State.FAIL, "GPU 3 could not remap a row"),
    found("C5", State.WARN, "NCCL_P2P_DISABLE=1 sends peer traffic through host memory"),
)
STRANGE = probe_document(
    Verdict.FAIL, found("C6", State.FAIL, "CUDA_VISIBLE_DEVICES names no GPU"), found("P1", State.WARN, "GPU 0 has x8")
)
BUSY = probe_document(Verdict.INCONCLUSIVE, found("Q1", State.UNKNOWN, "GPU 0 not loaded: in use"))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A node without jobs that Slurm lets be drained, and healthy GPUs."""
    stage = Stage(tmp_path)
    stage.recorder("squeue")
    stage.recorder("logger")
    set_state(stage, "IDLE")
    stage.answers("load", 0, HEALTHY)
    stage.answers("look", 0, HEALTHY)
    return stage


def set_state(stage: Stage, state: str, update: int = 0) -> None:
    """What Slurm says about the node, and how an update ends."""
    stage.recorder(
        "scontrol", f'case $1 in show) echo "NodeName=n1 State={state} Reason=none" ;; *) exit {update} ;; esac'
    )


def health(stage: Stage, **variables: str) -> list[str]:
    """Run the health check, which ends with 0 whatever it found; what it told Slurm to change."""
    done = stage.run("/bin/sh", HEALTH, SLURMD_NODENAME="n1", **variables)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    return [call for call in stage.calls("scontrol") if not call.startswith("show")]


def drained(reason: str) -> list[str]:
    return [f"update nodename=n1 state=drain reason=gpubalance {reason}"]


def test_an_idle_node_that_is_healthy_is_loaded_and_left_alone(stage: Stage) -> None:
    assert health(stage) == []
    assert stage.calls("gpubalance") == ["probe --json --load"]
    assert stage.calls("logger") == []


def test_a_broken_gpu_drains_the_node_and_what_users_set_is_told_apart(stage: Stage) -> None:
    stage.answers("load", 1, BROKEN)
    assert health(stage) == drained("[node] M2 GPU 3 has 2 uncorrected ECC errors (+1 more)")
    assert stage.calls("logger") == [
        "-t gpubalance -- warn: [user] C5 NCCL_P2P_DISABLE=1 sends peer traffic through host memory",
        "-t gpubalance -- drained: [node] M2 GPU 3 has 2 uncorrected ECC errors (+1 more)",
    ]


def test_what_users_did_drains_nothing(stage: Stage) -> None:
    stage.answers("load", 1, STRANGE)
    assert health(stage) == []
    assert stage.calls("logger") == [
        "-t gpubalance -- fail: [user] C6 CUDA_VISIBLE_DEVICES names no GPU",
        "-t gpubalance -- warn: [node] P1 GPU 0 has x8",
    ]


@pytest.mark.parametrize("squeue", ["echo 4711", "exit 1"])
def test_a_node_with_jobs_or_of_which_nobody_knows_is_only_looked_at(stage: Stage, squeue: str) -> None:
    stage.recorder("squeue", squeue)
    assert health(stage) == []
    assert stage.calls("gpubalance") == ["probe --json"]
    assert stage.calls("squeue") == ["--noheader --nodelist n1 --format %i"]


def test_a_fault_that_a_look_sees_drains_a_node_with_jobs(stage: Stage) -> None:
    stage.recorder("squeue", "echo 4711")
    stage.answers("look", 1, BROKEN)
    assert health(stage) == drained("[node] M2 GPU 3 has 2 uncorrected ECC errors (+1 more)")


def test_gpus_that_somebody_uses_outside_slurm_are_only_looked_at(stage: Stage) -> None:
    stage.answers("load", 3, BUSY)
    assert health(stage) == []
    assert stage.calls("gpubalance") == ["probe --json --load", "probe --json"]
    assert stage.calls("logger") == []


@pytest.mark.parametrize(("setting", "drains"), [({}, False), ({"GPUBALANCE_DRAIN_WITHOUT_VERDICT": "yes"}, True)])
def test_no_verdict_is_told_and_drains_only_on_request(stage: Stage, setting: dict[str, str], drains: bool) -> None:
    stage.answers("load", 3, BUSY)
    stage.answers("look", 3, probe_document(Verdict.INCONCLUSIVE, found("S2", State.UNKNOWN, "the driver is silent")))
    assert health(stage, **setting) == (drained("no verdict: the driver is silent") if drains else [])
    assert stage.calls("logger")[0] == "-t gpubalance -- no verdict: the driver is silent"


def test_a_probe_that_hangs_is_ended_and_gives_no_verdict(stage: Stage) -> None:
    stage.hangs("load")
    assert health(stage, GPUBALANCE_LOAD_LIMIT_S="0.2") == []
    assert stage.calls("gpubalance") == ["probe --json --load"]
    assert stage.calls("logger") == ["-t gpubalance -- no verdict: probe did not end in time"]


@pytest.mark.parametrize(
    ("code", "out", "says"),
    [
        (2, "", "probe ended with exit code 2"),
        (127, "", "probe ended with exit code 127"),
        (0, "Traceback", "the record could not be read; is jq installed?"),
        (1, '{"judgement": {"findings": null}}', "the record could not be read; is jq installed?"),
    ],
)
def test_a_tool_that_does_not_work_is_no_verdict(stage: Stage, code: int, out: str, says: str) -> None:
    stage.answers("load", code, out)
    assert health(stage) == []
    assert stage.calls("logger") == [f"-t gpubalance -- no verdict: {says}"]


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "MIXED+DRAINING", "DRAINED"])
def test_a_node_that_is_drained_keeps_its_reason_and_is_never_resumed(stage: Stage, state: str) -> None:
    set_state(stage, state)
    stage.answers("load", 1, BROKEN)
    assert health(stage) == []
    stage.answers("load", 0, HEALTHY)
    assert health(stage) == []


def test_a_drain_that_slurm_refuses_is_told(stage: Stage) -> None:
    set_state(stage, "IDLE", update=1)
    stage.answers("load", 1, BROKEN)
    health(stage)
    assert stage.calls("logger")[-1].startswith("-t gpubalance -- could not be drained: [node] M2")


def test_text_from_outside_cannot_leave_the_reason(stage: Stage) -> None:
    evil = found("M2", State.FAIL, 'GPU "0" \x1b[31m`reboot`; $(reboot) state=resume\nreason=fine' + "x" * 300)
    stage.answers("load", 1, probe_document(Verdict.FAIL, evil))
    (call,) = health(stage)
    reason = call.partition("reason=gpubalance ")[2]
    assert reason.startswith("[node] M2 GPU  0   [31m reboot    (reboot) state=resume")
    assert len(reason) <= 200
    assert not set(reason) & set("\"'`$;\x1b\n")


def test_nothing_is_left_behind(stage: Stage, tmp_path: Path) -> None:
    health(stage)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("tmp.")] == []


def test_the_checks_that_are_about_users_exist() -> None:
    ids = {"C5", "C6", "S6", "U1"}
    assert ids <= {check.id for check in CHECKS}
    assert f'user_checks="{" ".join(sorted(ids))}"' in HEALTH.read_text()
    assert f"--skip {','.join(sorted(ids))}" in PROLOG.read_text()


@pytest.mark.parametrize(
    ("code", "out", "ends", "says"),
    [
        (0, "PASS  2 GPUs healthy\n", 0, []),
        (0, "WARN  GPU 0 has x8\n", 0, []),
        (1, "FAIL  GPU 3 has errors\n\nmore\n", 1, ["prolog of job 7: [node] FAIL  GPU 3 has errors"]),
        (2, "", 0, ["prolog: no verdict (exit code 2) "]),
        (3, "NO VERDICT  silence\n", 0, ["prolog: no verdict (exit code 3) NO VERDICT  silence"]),
        (127, "", 0, ["prolog: no verdict (exit code 127) "]),
    ],
)  # fmt: skip
def test_only_a_fault_of_the_node_stops_a_job(stage: Stage, code: int, out: str, ends: int, says: list[str]) -> None:
    stage.answers("look", code, out)
    assert stage.run("/bin/sh", PROLOG, SLURM_JOB_ID="7").returncode == ends
    assert stage.calls("gpubalance") == ["probe --skip C5,C6,S6,U1"]
    assert [call.strip() for call in stage.calls("logger")] == [f"-t gpubalance -- {text}".strip() for text in says]


def test_a_prolog_stops_no_job_when_probe_hangs_and_calls_no_slurm(stage: Stage) -> None:
    stage.hangs("look")
    assert stage.run("/bin/sh", PROLOG, GPUBALANCE_LOOK_LIMIT_S="0.2").returncode == 0
    assert stage.calls("logger") == ["-t gpubalance -- prolog: no verdict, probe did not end in 0.2 s"]
    assert stage.calls("squeue") + stage.calls("scontrol") == []


def test_a_lost_card_drains_the_node_with_the_real_command(stage: Stage) -> None:
    stage.recorder("squeue", "echo 4711")
    stage.command("gpubalance", f'#!/bin/sh\nexec "{sys.executable}" -m gpubalance "$@"\n')
    environment = command_environment(GPUBALANCE_PROBE_SIMULATE="lost_card", GPUBALANCE_LOOK_LIMIT_S="150")
    environment.pop("PATH")
    (call,) = health(stage, **{**environment, "PYTHONPATH": str(ROOT)})
    assert call.startswith("update nodename=n1 state=drain reason=gpubalance [node] ")

"""A parent that does not report carries out the orders of the one that does. In processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpubalance.errors import CannotMeasureError
from gpubalance.launch.launcher_env import Share
from gpubalance.launch.start import job_path
from gpubalance.record.file import load_run
from gpubalance.record.job import Job
from gpubalance.record.rank_log import LogTail
from gpubalance.session import share as share_module
from gpubalance.session.share import Orders, orders_path
from gpubalance.testing.profiles import h200_node
from tests.support import (
    BOUND,
    HEALTHY,
    alive,
    command_environment,
    eventually,
    make_job,
    scripted_bench_command,
    write_script,
)

REPORTING = Share("torchrun", 0, 2, "job-29500-0")

SERVE = """
import os
import sys
from pathlib import Path
from gpubalance.errors import CannotMeasureError
from gpubalance.launch.launcher_env import Share
from gpubalance.session import share
share.FIRST_ORDER_LIMIT_S = float(sys.argv[2])
try:
    ours = Share("torchrun", 1, 2, "job-29500-0")
    lives = lambda folder: not (folder / "owner is gone").exists()
    share.serve(ours, Path(sys.argv[1]), "gpubalance.testing.scripted_rank", os.getppid(), lives)
except CannotMeasureError as error:
    print(error.message)
    sys.exit(int(error.exit_code))
"""

Serve = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The shared folder."""
    shared = tmp_path / "shared"
    shared.mkdir()
    return shared


@pytest.fixture
def serve(tmp_path: Path, folder: Path) -> Iterator[Serve]:
    """Start the parent of rank 1, whose rank follows this script; none is left behind."""
    processes: list[subprocess.Popen[str]] = []

    def start(script: dict[str, Any], limit_s: float = 60.0, wrapper: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        command = [*wrapper, sys.executable, "-c", SERVE, str(folder), str(limit_s)]
        environment = {**command_environment(), **write_script(tmp_path, script)}
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate(timeout=20)


def order_crew(orders: Orders, folder: Path, **values: Any) -> Job:
    job = make_job(folder, **values)
    job.save(job_path(job))
    orders.crew(job_path(job))
    return job


def events_of(path: Path) -> list[dict[str, Any]]:
    return LogTail(path).read()


def process_of(job: Job, rank: int) -> psutil.Process:
    """The process of a rank, once it said hello."""
    hello = eventually(lambda: [e for e in events_of(job.log_path(rank)) if e["event"] == "hello"])
    return psutil.Process(hello[0]["pid"])


def test_a_rank_starts_on_order_and_its_end_is_reported(serve: Serve, folder: Path) -> None:
    parent, orders = serve({"*": [["phase", "ddp"], ["end"]]}), Orders(folder, REPORTING)
    job = order_crew(orders, folder)
    (death,) = eventually(lambda: events_of(job.death_path(1)))
    assert (death["event"], death["exit_code"]) == ("death", 0)
    assert [e["event"] for e in events_of(job.log_path(1))] == ["hello", "device", "phase_begin", "phase_end", "bye"]
    assert not job.log_path(0).exists()
    orders.end()
    assert parent.communicate(timeout=20)[0] == ""
    assert parent.returncode == 0
    assert len(events_of(job.death_path(1))) == 1


def test_a_rank_that_was_killed_is_reported_with_its_signal(serve: Serve, folder: Path) -> None:
    serve({"*": [["phase", "ddp"], ["kill", int(signal.SIGKILL)]]})
    job = order_crew(Orders(folder, REPORTING), folder)
    (death,) = eventually(lambda: events_of(job.death_path(1)))
    assert death["exit_code"] == -signal.SIGKILL


def test_a_rank_that_sits_still_ends_on_order_and_the_next_crew_starts(serve: Serve, folder: Path) -> None:
    parent, orders = serve({"*": [["sleep"]]}), Orders(folder, REPORTING)
    first = process_of(order_crew(orders, folder), 1)
    orders.stop()
    eventually(lambda: not alive([first]))
    assert parent.poll() is None
    second = process_of(order_crew(orders, folder, attempt=1), 1)
    assert second.pid != first.pid
    orders.end()
    assert parent.wait(timeout=20) == 0
    eventually(lambda: not alive([second]))


def test_a_new_crew_ends_the_old_one_without_being_told(serve: Serve, folder: Path) -> None:
    serve({"*": [["sleep"]]})
    orders = Orders(folder, REPORTING)
    first = process_of(order_crew(orders, folder), 1)
    process_of(order_crew(orders, folder, attempt=1), 1)
    eventually(lambda: not alive([first]))


def test_a_parent_ends_with_its_rank_when_the_folder_vanishes(serve: Serve, folder: Path) -> None:
    parent = serve({"*": [["sleep"]]})
    rank = process_of(order_crew(Orders(folder, REPORTING), folder), 1)
    shutil.rmtree(folder)
    assert parent.wait(timeout=20) == 0
    eventually(lambda: not alive([rank]))


def test_a_parent_ends_with_its_rank_when_the_one_that_reports_is_gone(serve: Serve, folder: Path) -> None:
    """Killed, so that it neither gave its last order nor took its folder along."""
    parent = serve({"*": [["sleep"]]})
    rank = process_of(order_crew(Orders(folder, REPORTING), folder), 1)
    (folder / "owner is gone").touch()
    assert parent.wait(timeout=20) == 0
    eventually(lambda: not alive([rank]))


def test_a_parent_that_never_gets_an_order_gives_up(serve: Serve, folder: Path) -> None:
    parent = serve({}, limit_s=0.0)
    assert parent.communicate(timeout=20)[0] == "rank 0's parent never gave an order\n"
    assert parent.returncode == 3


def test_after_the_first_order_there_is_no_limit(serve: Serve, folder: Path) -> None:
    orders = Orders(folder, REPORTING)
    first = order_crew(orders, folder)
    parent = serve({"*": [["sleep"]]}, limit_s=0.0)
    process_of(first, 1)
    orders.stop()
    process_of(order_crew(orders, folder, attempt=1), 1)
    assert parent.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_parent_and_its_rank_end_with_a_launcher_that_was_killed(serve: Serve, folder: Path) -> None:
    launcher = serve({"*": [["sleep"]]}, wrapper=("sh", "-c", '"$@" & wait', "sh"))
    rank = process_of(order_crew(Orders(folder, REPORTING), folder), 1)
    family = [psutil.Process(rank.ppid()), rank]
    assert family[0].ppid() == launcher.pid
    launcher.kill()
    eventually(lambda: not alive(family))


def test_each_parent_tells_which_cores_its_launcher_gave_it(serve: Serve, folder: Path) -> None:
    core = max(os.sched_getaffinity(0))
    serve({}, wrapper=(sys.executable, "-c", BOUND, str(core)))
    assert share_module.cores_of_ranks(REPORTING, folder, [7, 5]) == [[7, 5], [core]]


def test_a_parent_that_does_not_show_up_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_module, "PARENTS_LIMIT_S", 0.0)
    with pytest.raises(CannotMeasureError, match="the torchrun process of rank 1 did not show up within 0 s"):
        share_module.cores_of_ranks(REPORTING, folder, [0])


def test_one_parent_of_all_ranks_waits_for_nobody(folder: Path) -> None:
    assert share_module.cores_of_ranks(Share("own"), folder, [0, 1]) == []


def test_with_own_ranks_there_is_nobody_to_tell(tmp_path: Path) -> None:
    orders = Orders(tmp_path, Share("own"))
    orders.crew(tmp_path / "job.json")
    orders.stop()
    orders.end()
    assert list(tmp_path.iterdir()) == []


def test_orders_are_lines_in_the_shared_folder(folder: Path) -> None:
    orders = Orders(folder, REPORTING)
    orders.crew(folder / "ranks-0.json")
    orders.stop()
    orders.end()
    found = [{key: value for key, value in e.items() if key != "t_s"} for e in events_of(orders_path(folder))]
    assert found == [{"event": "crew", "job": str(folder / "ranks-0.json")}, {"event": "stop"}, {"event": "end"}]


Launch = Callable[..., list[subprocess.Popen[str]]]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """`gpubalance bench` twice, as a launcher of two ranks starts it; both have this process as their launcher."""
    parents: list[subprocess.Popen[str]] = []

    def start(script: dict[str, Any], *arguments: str, launcher: str = "torchrun") -> list[subprocess.Popen[str]]:
        parents.extend(launched(tmp_path, script, *arguments, launcher=launcher))
        return parents

    yield start
    for parent in parents:
        parent.kill()
        parent.communicate(timeout=20)


def of_torchrun(rank: int) -> dict[str, str]:
    return {
        "TORCHELASTIC_RUN_ID": f"test-{os.getpid()}", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
        "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank),
    }  # fmt: skip


def of_slurm(rank: int) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": f"test{os.getpid()}", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_NODEID": "0",
        "SLURM_LOCALID": str(rank), "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
    }  # fmt: skip


def of_open_mpi(rank: int) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    }  # fmt: skip


def of_mpich(rank: int) -> dict[str, str]:
    return {"PMI_RANK": str(rank), "PMI_SIZE": "2", "MPI_LOCALRANKID": str(rank), "MPI_LOCALNRANKS": "2"}


def of_ray(rank: int) -> dict[str, str]:
    """Adopted by name; its own group holds the store at MASTER_PORT."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "NODE_RANK": 0}
    return {**{name: str(value) for name, value in names.items()}, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(os.getpid()), "GPUBALANCE_BENCH_LAUNCHER": "env"}  # fmt: skip


LAUNCHERS = {"torchrun": of_torchrun, "slurm": of_slurm, "Open MPI": of_open_mpi, "MPI": of_mpich, "env": of_ray}
APART = {"env": ("sh", "-c", '"$@"; exit', "sh")}
"""Each worker of Ray is a process of its own, which starts what it runs."""


def launched(
    tmp_path: Path, script: dict[str, Any], *arguments: str, launcher: str = "torchrun"
) -> list[subprocess.Popen[str]]:
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(h200_node()))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    base = {
        **command_environment(XDG_STATE_HOME=str(tmp_path / "state"), TMPDIR=str(scratch)),
        **write_script(tmp_path, script),
    }
    command = scripted_bench_command("--workload", "ddp", *arguments, stand_in=profile)
    return [
        subprocess.Popen(
            [*APART.get(launcher, ()), *command],
            env={**base, **LAUNCHERS[launcher](rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_parents_of_a_launcher_measure_together_and_one_reports(
    launch: Launch, tmp_path: Path, launcher: str
) -> None:
    out = tmp_path / "run.json"
    slow = [["phase", "ddp"], ["blocks", 24, 120.0], ["overlapped", 8, 140.0], ["end"]]
    script = {"ranks-0": {"0": HEALTHY, "1": slow}, "ranks-1": {"0": slow, "1": HEALTHY[2:]}}
    parents = launch(script, "--out", str(out), launcher=launcher)
    (shown, progress), (nothing, silence) = (parent.communicate(timeout=60) for parent in parents)
    assert [parent.returncode for parent in parents] == [1, 0]
    assert "rank 1 is 20 % slower than rank 0" in shown
    assert f"started by {launcher}" in progress
    assert f"launcher: {launcher} (2 ranks, 1 node)" in progress
    assert (nothing, silence) == ("", "")
    run = load_run(out)
    assert run.plan.launcher == launcher
    assert [[rank.device for rank in attempt.ranks] for attempt in run.ddp] == [[0, 1], [1, 0]]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_rank_of_another_parent_that_dies_is_named_by_the_one_that_reports(launch: Launch) -> None:
    dying = [["phase", "ddp"], ["blocks", 3, 100.0], ["kill", int(signal.SIGKILL)]]
    waiting = [["phase", "ddp"], ["blocks", 4, 100.0], ["sleep"]]
    parents = launch({"0": waiting, "1": dying})
    (shown, _), _ = (parent.communicate(timeout=60) for parent in parents)
    assert [parent.returncode for parent in parents] == [3, 0]
    assert "NO VERDICT  rank 1 killed by SIGKILL" in shown

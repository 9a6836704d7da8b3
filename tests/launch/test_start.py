"""How ranks are started: torchrun's environment, private output, and an end for everybody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpubalance.launch import start as start_module
from gpubalance.launch.start import (
    child_environment,
    end_ranks,
    listening_socket,
    port_path,
    rank_environment,
    start_ranks,
)
from gpubalance.record.job import LISTEN_VARIABLE
from tests.support import SCRIPTED, alive, eventually, make_job, write_script


def test_a_rank_gets_exactly_torchruns_variables(tmp_path: Path) -> None:
    environment = rank_environment({"PATH": "/bin", "TORCHELASTIC_RUN_ID": "stale"}, make_job(tmp_path, 4), 2, 12345)
    expected = {
        "RANK": "2",
        "LOCAL_RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "0",
        "ROLE_RANK": "2",
        "ROLE_WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "12345",
    }
    assert {name: environment[name] for name in expected} == expected
    assert "TORCHELASTIC_RUN_ID" not in environment


def test_under_a_launcher_its_store_and_port_are_left_alone(tmp_path: Path) -> None:
    base = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "job"}
    environment = rank_environment(base, make_job(tmp_path), 1, None)
    assert {name: environment[name] for name in base} == base


def test_ranks_of_other_parents_find_the_store_of_rank_0_beside_the_job(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    environment = {**child_environment(os.environ, ()), **write_script(tmp_path, {"*": [["sleep"]]})}
    processes = start_ranks(job, [0], environment, SCRIPTED, own_store=True)
    processes |= start_ranks(job, [1], environment, SCRIPTED, own_store=False)
    seen = [psutil.Process(process.pid).environ() for process in processes.values()]
    end_ranks(processes)
    assert seen[0]["MASTER_PORT"] == seen[1]["MASTER_PORT"] == port_path(job).read_text()
    assert (LISTEN_VARIABLE in seen[0], LISTEN_VARIABLE in seen[1]) == (True, False)


@pytest.mark.parametrize(
    ("backend", "chosen", "interface"),
    [
        ("gloo", None, "lo"),
        ("gloo", "", "lo"),
        ("gloo", "eth0", "eth0"),  # what the user's own training would take is measured
        ("nccl", "eth0", "lo"),  # control only
        ("nccl", None, "lo"),
    ],
)
def test_gloo_takes_loopback_unless_it_carries_what_is_measured_and_the_user_chose(
    tmp_path: Path, backend: str, chosen: str | None, interface: str
) -> None:
    base = {} if chosen is None else {"GLOO_SOCKET_IFNAME": chosen}
    assert rank_environment(base, make_job(tmp_path, backend=backend), 0, 1)["GLOO_SOCKET_IFNAME"] == interface


def test_children_see_the_chosen_devices_by_uuid_in_the_plans_order() -> None:
    environment = child_environment({"CUDA_VISIBLE_DEVICES": "0,1"}, ["GPU-b", "GPU-a"])
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"
    assert "CUDA_VISIBLE_DEVICES" not in child_environment({}, [])


def test_children_import_from_the_same_places_as_the_parent() -> None:
    environment = child_environment(os.environ, ())
    shown = subprocess.run(
        [sys.executable, "-c", "import sys; print('\\n'.join(sys.path))"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    ours = dict.fromkeys(path for path in sys.path if path)
    theirs = dict.fromkeys(path for path in shown.stdout.splitlines() if path in ours)
    assert list(theirs) == list(ours)


def test_the_listening_socket_is_on_loopback_only() -> None:
    with listening_socket() as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_rank_whose_parent_is_not_the_one_it_was_told_of_ends_at_once(tmp_path: Path) -> None:
    environment = child_environment({**os.environ, **write_script(tmp_path, {"*": [["sleep"]]})}, ())
    environment["GPUBALANCE_PARENT_PID"] = "1"
    processes = start_ranks(make_job(tmp_path), [0], environment, SCRIPTED, own_store=True)
    eventually(lambda: processes[0].poll() is not None)
    assert processes[0].returncode == 1


def test_ending_ranks_ends_what_they_started_too(tmp_path: Path) -> None:
    marker = tmp_path / "grandchild"
    module = tmp_path / "breeder.py"
    module.write_text(
        "import subprocess, sys, pathlib, signal\n"
        f"p = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        f"pathlib.Path({str(marker)!r}).write_text(str(p.pid))\n"
        "signal.pause()\n"
    )
    environment = {**child_environment(os.environ, ()), "PYTHONPATH": str(tmp_path)}
    processes = start_ranks(make_job(tmp_path), [0], environment, "breeder", own_store=True)
    eventually(lambda: marker.exists() and marker.read_text())
    grandchild = psutil.Process(int(marker.read_text()))
    assert end_ranks(processes) == []
    eventually(lambda: not alive([grandchild]))


def test_ranks_that_were_started_end_when_a_later_one_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of processes, or interrupted: nobody else knows of them yet."""
    started: list[psutil.Process] = []
    begin = start_module._start

    def start(job: Any, rank: int, *rest: Any) -> Any:
        if rank == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        process = begin(job, rank, *rest)
        started.append(psutil.Process(process.pid))
        return process

    monkeypatch.setattr(start_module, "_start", start)
    (tmp_path / "sleeper.py").write_text("import signal; signal.pause()")
    environment = {**child_environment(os.environ, ()), "PYTHONPATH": str(tmp_path)}
    with pytest.raises(BlockingIOError):
        start_ranks(make_job(tmp_path, ranks=3), [0, 1, 2], environment, "sleeper", own_store=True)
    assert len(started) == 2
    eventually(lambda: not alive(started))

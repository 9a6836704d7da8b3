"""Starts ranks as plain child processes with torchrun's environment, so that any launcher can take over."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gpubalance.record.job import JOB_VARIABLE, LISTEN_VARIABLE, PARENT_VARIABLE, Job

RANK_MODULE = "gpubalance.workloads.rank_main"
REAP_LIMIT_S = 5.0
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"


def child_environment(base: Mapping[str, str], visible_uuids: Sequence[str]) -> dict[str, str]:
    """The environment that all our children share: the same modules as the parent, and the chosen devices only.

    Devices are named by UUID, so that CUDA's ordinals are ours whatever CUDA_DEVICE_ORDER says.
    """
    environment = dict(base)
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment["PYTHONSAFEPATH"] = "1"
    environment["PYTHONUNBUFFERED"] = "1"
    environment[PARENT_VARIABLE] = str(os.getpid())
    if visible_uuids:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible_uuids)
    return environment


def rank_environment(base: Mapping[str, str], job: Job, rank: int, port: int | None) -> dict[str, str]:
    """What torchrun would set for this rank, and the path of the job. `port` None: a launcher has set its own."""
    world = len(job.slots) if job.crew == "ranks" else 1
    environment = {**base, JOB_VARIABLE: str(job_path(job)), GLOO_INTERFACE: _interface(base, job)}
    if job.device == "cpu":
        environment.setdefault("OMP_NUM_THREADS", "1")
    if port is not None:
        for name in [name for name in environment if name.startswith("TORCHELASTIC_")]:
            del environment[name]
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GPUBALANCE_OWN_STORE="1")
    return {
        **environment,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world),
    }


def _interface(base: Mapping[str, str], job: Job) -> str:
    """Loopback carries what stays on this node; where gloo carries what is measured, the user's choice is measured."""
    chosen = base.get(GLOO_INTERFACE) if job.backend == "gloo" else None
    return chosen or "lo"


@contextmanager
def listening_socket() -> Iterator[socket.socket]:
    """A socket on loopback with a port that the system chose; rank 0's store serves on it. Nobody can take the port
    in between, and nothing is open beyond this machine.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(256)
        yield listening


def job_path(job: Job) -> Path:
    """Where the job's file is."""
    return Path(job.log_folder) / f"{job.crew}-{job.attempt}.json"


def port_path(job: Job) -> Path:
    """Where the parent that serves the store of a job tells its port."""
    return job_path(job).with_suffix(".port")


def _port_of_others(job: Job) -> int | None:
    """None where the launcher has a store."""
    path = port_path(job)
    return int(path.read_text()) if path.exists() else None


def start_ranks(
    job: Job, ranks: Sequence[int], base: Mapping[str, str], module: str, *, own_store: bool, held: bool = False
) -> dict[int, subprocess.Popen[bytes]]:
    """Start these ranks of the job. Everything that they print goes to a file of their own.

    With `own_store` rank 0 is among them and serves the store; ranks of other parents find its port beside the job.
    Ranks that are held import what they need and then wait for `release`.
    """
    if own_store or 0 in ranks:  # under a launcher one parent writes the file before it tells the others
        job.save(job_path(job))
    with listening_socket() as listening:
        port = listening.getsockname()[1] if own_store else _port_of_others(job)
        if own_store:
            port_path(job).write_text(str(port))
        stdin = subprocess.PIPE if held else subprocess.DEVNULL
        started: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for rank in ranks:
                started[rank] = _start(job, rank, base, module, listening, port, stdin)
        except BaseException:
            end_ranks(started)  # nobody else knows of them yet
            raise
        return started


def release(processes: Mapping[int, subprocess.Popen[bytes]]) -> None:
    """Let ranks that were held do their work; the others do it already."""
    for process in processes.values():
        if process.stdin is not None:
            process.stdin.close()


def _start(
    job: Job, rank: int, base: Mapping[str, str], module: str, listening: socket.socket, port: int | None, stdin: int
) -> subprocess.Popen[bytes]:
    environment = rank_environment(base, job, rank, port)
    descriptors: tuple[int, ...] = ()
    if rank == 0 and port is not None:
        descriptors = (listening.fileno(),)
        environment[LISTEN_VARIABLE] = str(listening.fileno())
    with job.output_path(rank).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=stdin,
            stdout=output,
            stderr=output,
            env=environment,
            pass_fds=descriptors,
            start_new_session=True,
        )


def end_ranks(processes: Mapping[int, subprocess.Popen[bytes]]) -> list[int]:
    """Kill what is left, with all that it started, and reap it. Returns pids that would not die (D state)."""
    for process in processes.values():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    release(processes)
    stuck = []
    for process in processes.values():
        try:
            process.wait(timeout=REAP_LIMIT_S)
        except subprocess.TimeoutExpired:
            stuck.append(process.pid)
    return stuck

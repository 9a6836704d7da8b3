"""What each launcher says of this process: one rank of several, or one process of a node. Pure functions of variables.

torchrun        TORCHELASTIC_RUN_ID, RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
Slurm           a step of srun: SLURM_STEP_ID, SLURM_PROCID, SLURM_LOCALID, SLURM_STEP_NUM_TASKS,
                SLURM_STEP_TASKS_PER_NODE; a batch script has no step (Slurm, srun(1), OUTPUT ENVIRONMENT VARIABLES)
Open MPI        OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
MVAPICH         MV2_COMM_WORLD_..., likewise
MPICH, Intel    PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS; Cray: PMI_LOCAL_RANK, PMI_LOCAL_SIZE
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubalance.errors import UsageError

LAST_STEP = 0xFFFFFFEF
"""Slurm numbers steps that are no srun (batch, extern, interactive) from the top of 32 bits (slurm.h)."""

_PER_NODE = re.compile(r"(\d+)(?:\(x(\d+)\))?")


@dataclass(frozen=True)
class Claim:
    """A launcher that started several processes, and which of them this one is."""

    launcher: str
    rank: int
    world: int
    local_rank: int
    local_world: int
    said: str
    """The variables and values that say so."""
    key: str = ""
    """Names the run; empty when only the launcher's process does."""

    @property
    def nodes(self) -> int:
        """At least so many nodes take part."""
        return -(-self.world // self.local_world)

    @property
    def of_a_node(self) -> bool:
        """True when it stands for a whole node: one process on each of several."""
        return self.local_world == 1 and self.world > 1


Environment = Mapping[str, str]


def certain_claims(environment: Environment) -> list[Claim]:
    """All claims of Slurm and MPI, in the order in which they are believed. Raises UsageError for a variable that is
    no number, is missing, or does not fit the others.
    """
    found = [_slurm(environment), *(_mpi(environment, *names) for names in _MPI)]
    return [_checked(claim) for claim in found if claim is not None]


def _checked(claim: Claim) -> Claim:
    fits = claim.rank < claim.world and claim.local_rank < claim.local_world <= claim.world
    if not fits or (claim.local_world == claim.world and claim.rank != claim.local_rank):
        raise UsageError(f"{claim.said} contradict each other", "give --nproc to start own ranks")
    return claim


def whole_number(environment: Environment, name: str) -> int:
    """The value of a variable. Raises UsageError when it is no whole number that counts something."""
    text = environment[name]
    if not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise UsageError(f"{name}={text[:20]!r} is no whole number", "give --nproc to start own ranks")
    return int(text)


def _slurm(environment: Environment) -> Claim | None:
    """A step of several tasks. SLURM_NTASKS alone is that of the job, which a batch script sees as well."""
    names = ["SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"]
    if any(name not in environment for name in names[:2]) or whole_number(environment, "SLURM_STEP_ID") > LAST_STEP:
        return None
    if "SLURM_STEP_NUM_TASKS" not in environment and "SLURM_NTASKS" in environment:
        names[3] = "SLURM_NTASKS"
    if names[3] not in environment or whole_number(environment, names[3]) < 2:
        return None
    _, rank, local, world = (whole_number(environment, name) for name in _all_of(environment, names, "Slurm"))
    job = "-".join(environment.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"))
    here = _slurm_tasks_here(environment, world)
    return Claim("slurm", rank, world, local, here, said(environment, names[1:]), f"slurm-{job}")


def _slurm_tasks_here(environment: Environment, world: int) -> int:
    """SLURM_STEP_TASKS_PER_NODE is 8(x2),4: a number for each node, repeated ones in brackets."""
    text = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE")
    node = whole_number(environment, "SLURM_NODEID") if "SLURM_NODEID" in environment else 0
    if not text:
        return world
    first = 0
    for part in text.split(","):
        match = _PER_NODE.fullmatch(part)
        if match is None or len(part) > 20:
            break
        first += int(match[2] or 1)
        if node < first:
            return int(match[1])
    raise UsageError(f"SLURM_STEP_TASKS_PER_NODE={text[:40]!r} has no number for node {node}", "give --nproc")


_MPI = (
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)  # fmt: skip
_CRAY = {"MPI_LOCALRANKID": "PMI_LOCAL_RANK", "MPI_LOCALNRANKS": "PMI_LOCAL_SIZE"}


def _mpi(environment: Environment, launcher: str, *names: str) -> Claim | None:
    """Several processes of one mpirun. Under srun PMI leaves the local numbers to Slurm, which is asked before."""
    rank_name, size_name, *local_names = names
    if rank_name not in environment or size_name not in environment or whole_number(environment, size_name) < 2:
        return None
    tells_local = any(name in environment for pair in _CRAY.items() for name in pair)
    if launcher == "MPI" and not tells_local and "SLURM_PROCID" in environment:
        return None
    locals_here = [_CRAY.get(name, name) if name not in environment else name for name in local_names]
    every = _all_of(environment, [rank_name, size_name, *locals_here], launcher)
    rank, world, local, here = (whole_number(environment, name) for name in every)
    space = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid") or ""
    key = f"mpi-{space}" if space and launcher == "Open MPI" else ""
    return Claim(launcher, rank, world, local, here, said(environment, every), key)


def _all_of(environment: Environment, names: Sequence[str], launcher: str) -> Sequence[str]:
    missing = [name for name in names if name not in environment]
    if missing:
        raise UsageError(
            f"the variables of {launcher}: {', '.join(missing)} not set", "give --nproc to start own ranks"
        )
    return names


def said(environment: Environment, names: Sequence[str]) -> str:
    """SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=2: what is set of these."""
    return ", ".join(f"{name}={environment[name][:40]}" for name in names if name in environment)

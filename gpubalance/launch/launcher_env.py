"""Who started this process: nobody, or a launcher whose ranks this process is one of.

A launcher is adopted only when it is certain: torchrun, a step of srun or an mpirun with several processes on this
node. A RANK that somebody left in the environment is ignored, and said so, because adopting it would make a lone
process wait for peers that never come. A launcher that starts one process on each node leaves the node to us.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpubalance.errors import UsageError
from gpubalance.launch.claims import Claim, certain_claims, said


@dataclass(frozen=True)
class Share:
    """The share of one parent: all local ranks (`rank` None), or the one its launcher gave it."""

    launcher: str
    rank: int | None = None
    world: int | None = None
    run_key: str = ""
    """Names the run for all parents of it; empty when this parent is the only one."""
    note: str | None = None
    key_is_whole: bool = False
    """True when the key alone names the run; else the launcher's process is part of its name."""
    has_store: bool = True
    """False when the launcher has none that is free for us: rank 0's parent makes the store."""

    @property
    def reports(self) -> bool:
        """True for the one parent that follows all ranks and reports."""
        return self.rank in (None, 0)


RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
OWN_RANKS = "give --nproc to start own ranks"
ONE_NODE = "gpubalance judges one node at a time"
ONCE_EACH = {
    "torchrun": "torchrun --nnodes 1 --nproc-per-node gpu -m gpubalance bench",
    "env": "torchrun --nnodes 1 --nproc-per-node gpu -m gpubalance bench",
    "slurm": "srun --ntasks-per-node 1 gpubalance bench",
    "Open MPI": "mpirun --map-by ppr:1:node gpubalance bench",
}


def detect_share(environment: Mapping[str, str], wanted: str, nproc: int | None, *, in_shell: bool = False) -> Share:
    """The share of this process. `wanted` is `--launcher`: auto, env or none; `in_shell` that somebody typed the
    command at a terminal, which tasks of a step have none of (`srun --pty bash`).

    Order: what was asked for, torchrun, Slurm, MPI, then launchers of whole nodes, then nobody. Raises UsageError
    when a launcher must be adopted but its variables are missing or contradict each other.
    """
    torchrun = "TORCHELASTIC_RUN_ID" in environment
    if wanted == "none" or (nproc is not None and wanted == "auto"):
        return Share("own", note=_ignored(environment, "own ranks were asked for"))
    if torchrun or wanted == "env":
        return _adopt(environment, "torchrun" if torchrun else "env")
    claims = [claim for claim in certain_claims(environment) if not (in_shell and claim.launcher == "slurm")]
    of_ranks = [claim for claim in claims if not claim.of_a_node]
    if of_ranks:
        return _adopt_claim(environment, of_ranks)
    return Share("own", note=_node_note(environment, claims) or _ignored(environment, "no launcher is certain"))


def _ignored(environment: Mapping[str, str], why: str) -> str | None:
    stray = [name for name in RANK_VARIABLES if name in environment]
    if not stray:
        return None
    of_ray = " of Ray" if "NODE_RANK" in environment and "LOCAL_WORLD_SIZE" in environment else ""
    return f"{', '.join(stray)}{of_ray} in the environment ignored: {why} (--launcher env adopts them)"


def _node_note(environment: Mapping[str, str], claims: list[Claim]) -> str | None:
    """A launcher that stands for whole nodes, and what of it is not used."""
    who = None
    if claims:
        claim = claims[0]
        who = f"launcher: {claim.launcher} (node {claim.rank} of {claim.world}, one process each)"
    elif "PET_NNODES" in environment:
        who = f"launcher: Kubeflow ({said(environment, ['PET_NNODES', 'PET_NODE_RANK'])})"
    elif _counts_pods(environment):
        pods = said(environment, ["RANK", "WORLD_SIZE"])
        who = f"launcher: PyTorchJob ({pods} count pods; MASTER_ADDR and MASTER_PORT are not used)"
    elif "JOB_COMPLETION_INDEX" in environment:
        who = f"launcher: Indexed Job ({said(environment, ['JOB_COMPLETION_INDEX'])})"
    return f"{who}: own ranks on this node" if who else None


def _counts_pods(environment: Mapping[str, str]) -> bool:
    """A PyTorchJob numbers pods, and knows of no ranks within one."""
    in_a_pod = "KUBERNETES_SERVICE_HOST" in environment or "KUBERNETES_PORT" in environment
    return in_a_pod and {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= set(environment) and "LOCAL_RANK" not in environment


def _adopt_claim(environment: Mapping[str, str], claims: list[Claim]) -> Share:
    """The first of them, when all say the same, RANK and WORLD_SIZE included where both are set."""
    first = claims[0]
    for other in claims[1:]:
        if (other.rank, other.world) != (first.rank, first.world):
            raise UsageError(f"two launchers contradict each other: {first.said} and {other.said}", OWN_RANKS)
    if {"RANK", "WORLD_SIZE"} <= set(environment):
        theirs = (environment["RANK"], environment["WORLD_SIZE"])
        if theirs != (str(first.rank), str(first.world)):
            by_hand = said(environment, ["RANK", "WORLD_SIZE"])
            raise UsageError(
                f"{first.said} and {by_hand} contradict each other", f"unset RANK and WORLD_SIZE, or {OWN_RANKS}"
            )
    if first.local_world != first.world:
        raise _several_nodes(first.launcher, first.world, first.local_world)
    return Share(
        first.launcher,
        first.rank,
        first.world,
        first.key or f"{first.launcher}-{first.world}",
        _detected(first.launcher, first.world),
        key_is_whole=bool(first.key),
        has_store=False,
    )


def _detected(launcher: str, world: int) -> str:
    return f"launcher: {launcher} ({world} {'rank' if world == 1 else 'ranks'}, 1 node)"


def _several_nodes(launcher: str, world: int, here: int) -> UsageError:
    command = ONCE_EACH.get(launcher, "mpirun -ppn 1 gpubalance bench")
    return UsageError(
        f"{world} ranks on several nodes ({here} here): {ONE_NODE}",
        f"start it once on each node, for example: {command}",
    )


def _adopt(environment: Mapping[str, str], launcher: str) -> Share:
    missing = [name for name in RANK_VARIABLES if name not in environment]
    if missing:
        who = "the variables of torchrun" if launcher == "torchrun" else "--launcher env"
        raise UsageError(f"{who}: {', '.join(missing)} not set")
    try:
        rank, local, world, local_world = (int(environment[name]) for name in RANK_VARIABLES[:4])
    except ValueError:
        raise UsageError("RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE must be whole numbers") from None
    numbers = said(environment, RANK_VARIABLES[:4])
    if not (0 <= rank < world and 0 <= local < local_world <= world):
        raise UsageError(f"{numbers} contradict each other", OWN_RANKS)
    if world != local_world:
        raise _several_nodes(launcher, world, local_world)
    if rank != local:
        raise UsageError(f"{numbers} contradict each other", OWN_RANKS)
    restart = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    key = f"{environment.get('TORCHELASTIC_RUN_ID', 'env')}-{environment['MASTER_PORT']}-{restart}"
    by_hand = launcher == "env"  # ranks of Ray have no parent in common, and a group of theirs is at MASTER_PORT
    detected = _detected(launcher, world)
    return Share(launcher, rank, world, key, detected, key_is_whole=by_hand, has_store=not by_hand)

"""Who started this process: nobody, or a launcher whose ranks this process is one of.

A launcher is adopted only when it is certain. A RANK that somebody left in the environment is ignored, and said so,
because adopting it would make a lone process wait for peers that never come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpubalance.errors import UsageError


@dataclass(frozen=True)
class Share:
    """The share of one parent: all local ranks (`rank` None), or the one its launcher gave it."""

    launcher: str
    rank: int | None = None
    world: int | None = None
    run_key: str = ""
    """Names the run for all parents of it; empty when this parent is the only one."""
    note: str | None = None

    @property
    def reports(self) -> bool:
        """True for the one parent that follows all ranks and reports."""
        return self.rank in (None, 0)


RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def detect_share(environment: Mapping[str, str], wanted: str, nproc: int | None) -> Share:
    """The share of this process. `wanted` is `--launcher`: auto, env or none.

    Raises UsageError when a launcher must be adopted but its variables are missing or contradict each other.
    """
    certain = "TORCHELASTIC_RUN_ID" in environment
    if wanted == "none" or (nproc is not None and wanted == "auto"):
        return Share("own", note=_ignored(environment, "own ranks were asked for"))
    if wanted == "auto" and not certain:
        return Share("own", note=_ignored(environment, "no launcher is certain"))
    return _adopt(environment, "torchrun" if certain else "env")


def _ignored(environment: Mapping[str, str], why: str) -> str | None:
    stray = [name for name in RANK_VARIABLES if name in environment]
    if not stray:
        return None
    return f"{', '.join(stray)} in the environment ignored: {why} (--launcher env adopts them)"


def _adopt(environment: Mapping[str, str], launcher: str) -> Share:
    missing = [name for name in RANK_VARIABLES if name not in environment]
    if missing:
        who = "the variables of torchrun" if launcher == "torchrun" else "--launcher env"
        raise UsageError(f"{who}: {', '.join(missing)} not set")
    try:
        rank, local, world, local_world = (int(environment[name]) for name in RANK_VARIABLES[:4])
    except ValueError:
        raise UsageError("RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE must be whole numbers") from None
    if world != local_world:
        raise UsageError(
            f"{world} ranks on several nodes ({local_world} here): gpubalance judges one node at a time",
            "start it once on each node, for example: torchrun --nnodes 1 --nproc-per-node gpu -m gpubalance bench",
        )
    if not 0 <= rank < world or rank != local:
        raise UsageError(f"RANK {rank}, LOCAL_RANK {local} and WORLD_SIZE {world} contradict each other")
    restart = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    key = f"{environment.get('TORCHELASTIC_RUN_ID', 'env')}-{environment['MASTER_PORT']}-{restart}"
    return Share(launcher, rank, world, key)

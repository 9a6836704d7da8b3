"""Who started this process: adopted only when it is certain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubalance.errors import UsageError
from gpubalance.launch.launcher_env import RANK_VARIABLES, Share, detect_share

RANKS = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}
TORCHRUN = {**RANKS, "TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "2"}
ALL_IGNORED = "RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment ignored"
HINT = "(--launcher env adopts them)"

ADOPTED = Share("torchrun", 1, 4, "job-29500-2", "launcher: torchrun (4 ranks, 1 node)")
BY_HAND = Share("env", 1, 4, "env-29500-0", "launcher: env (4 ranks, 1 node)", key_is_whole=True, has_store=False)
"""Ray's workers: no parent in common, and their own group holds MASTER_PORT."""

SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "3",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "4",
}
OF_SLURM = Share("slurm", 1, 4, "slurm-77-3-0", "launcher: slurm (4 ranks, 1 node)", key_is_whole=True, has_store=False)
A_NODE_EACH = {
    **SLURM, "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "1", "SLURM_NTASKS": "2",
    "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}  # fmt: skip


def of_mpi(prefix: str, rank: int, size: int, local_rank: int, local_size: int) -> dict[str, str]:
    """What Open MPI (OMPI) or MVAPICH (MV2) sets."""
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    return {
        f"{prefix}_COMM_WORLD_{n}": str(v) for n, v in zip(names, (rank, size, local_rank, local_size), strict=True)
    }


OMPI = {**of_mpi("OMPI", 1, 2, 1, 2), "PMIX_NAMESPACE": "prterun-node-9@1"}
OF_OMPI = Share(
    "Open MPI", 1, 2, "mpi-prterun-node-9@1", "launcher: Open MPI (2 ranks, 1 node)", key_is_whole=True, has_store=False
)
HYDRA = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
OF_HYDRA = Share("MPI", 0, 2, "MPI-2", "launcher: MPI (2 ranks, 1 node)", has_store=False)
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "j-0", "MASTER_PORT": "1"}
RAY = {**RANKS, "NODE_RANK": "0"}
OWN_NODE = ": own ranks on this node"

TABLE: list[tuple[str, dict[str, str], str, int | None, Share]] = [
    ("nobody", {}, "auto", None, Share("own")),
    ("nobody, ranks asked", {}, "auto", 2, Share("own")),
    ("nobody, no launcher wanted", {}, "none", None, Share("own")),
    ("torchrun", TORCHRUN, "auto", None, ADOPTED),
    ("torchrun, adopted by name", TORCHRUN, "env", None, ADOPTED),
    ("torchrun, adopted by name although ranks are asked", TORCHRUN, "env", 2, ADOPTED),
    (
        "torchrun, own ranks asked",
        TORCHRUN,
        "auto",
        2,
        Share("own", note=f"{ALL_IGNORED}: own ranks were asked for {HINT}"),
    ),
    (
        "torchrun, no launcher wanted",
        TORCHRUN,
        "none",
        None,
        Share("own", note=f"{ALL_IGNORED}: own ranks were asked for {HINT}"),
    ),
    (
        "all variables but nobody who is certain",
        RANKS,
        "auto",
        None,
        Share("own", note=f"{ALL_IGNORED}: no launcher is certain {HINT}"),
    ),
    ("all variables, adopted by name", RANKS, "env", None, BY_HAND),
    (
        "a stray RANK",
        {"RANK": "3", "HOME": "/root"},
        "auto",
        None,
        Share("own", note=f"RANK in the environment ignored: no launcher is certain {HINT}"),
    ),
    (
        "a stray RANK, ranks asked",
        {"RANK": "3"},
        "auto",
        2,
        Share("own", note=f"RANK in the environment ignored: own ranks were asked for {HINT}"),
    ),
    ("a step of srun", SLURM, "auto", None, OF_SLURM),
    ("an older Slurm without numbers of the step", {
        k: v for k, v in SLURM.items() if not k.startswith("SLURM_STEP_") or k == "SLURM_STEP_ID"
    }, "auto", None, OF_SLURM),
    ("a step that was requeued", {**SLURM, "SLURM_RESTART_COUNT": "2"}, "auto", None,
     replace(OF_SLURM, run_key="slurm-77-3-2")),
    ("a step, own ranks asked", SLURM, "auto", 2, Share("own")),
    ("a step, no launcher wanted", SLURM, "none", None, Share("own")),
    ("a step of one task", {**SLURM, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, "auto", None, Share("own")),
    ("a batch script has no step", {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
                                    "SLURM_NTASKS": "8"}, "auto", None, Share("own")),
    ("the interactive step of salloc", {**SLURM, "SLURM_STEP_ID": "4294967290"}, "auto", None, Share("own")),
    ("a task a node", A_NODE_EACH, "auto", None,
     Share("own", note=f"launcher: slurm (node 1 of 2, one process each){OWN_NODE}")),
    ("mpirun within a task a node", {**A_NODE_EACH, **OMPI}, "auto", None, OF_OMPI),
    ("torchrun within a step", {**A_NODE_EACH, **TORCHRUN}, "auto", None, ADOPTED),
    ("torchrun within mpirun", {**of_mpi("OMPI", 0, 2, 0, 2), **TORCHRUN}, "auto", None, ADOPTED),
    ("srun with PMI", {**SLURM, "PMI_RANK": "1", "PMI_SIZE": "4"}, "auto", None, OF_SLURM),
    ("srun with PMIx and Open MPI", {**SLURM, **of_mpi("OMPI", 1, 4, 1, 4)}, "auto", None, OF_SLURM),
    ("srun and the same by hand", {**SLURM, "RANK": "1", "WORLD_SIZE": "4"}, "auto", None, OF_SLURM),
    ("srun and a stray RANK alone", {**SLURM, "RANK": "7"}, "auto", None, OF_SLURM),
    ("Open MPI", OMPI, "auto", None, OF_OMPI),
    ("Open MPI 4", {**of_mpi("OMPI", 1, 2, 1, 2), "OMPI_MCA_ess_base_jobid": "99"}, "auto", None,
     replace(OF_OMPI, run_key="mpi-99")),
    ("Open MPI that names no job", of_mpi("OMPI", 1, 2, 1, 2), "auto", None,
     replace(OF_OMPI, run_key="Open MPI-2", key_is_whole=False)),
    ("Open MPI, a process a node", of_mpi("OMPI", 1, 2, 0, 1), "auto", None,
     Share("own", note=f"launcher: Open MPI (node 1 of 2, one process each){OWN_NODE}")),
    ("Open MPI of one process", of_mpi("OMPI", 0, 1, 0, 1), "auto", None, Share("own")),
    ("MVAPICH", of_mpi("MV2", 1, 2, 1, 2), "auto", None,
     Share("MVAPICH", 1, 2, "MVAPICH-2", "launcher: MVAPICH (2 ranks, 1 node)", has_store=False)),
    ("MPICH and Intel MPI", HYDRA, "auto", None, OF_HYDRA),
    ("Cray", {"PMI_RANK": "0", "PMI_SIZE": "2", "PMI_LOCAL_RANK": "0", "PMI_LOCAL_SIZE": "2"}, "auto", None, OF_HYDRA),
    ("a PyTorchJob", POD, "auto", None, Share("own", note=(
        "launcher: PyTorchJob (RANK=1, WORLD_SIZE=2 count pods; MASTER_ADDR and MASTER_PORT are not used)"
        ": own ranks on this node"))),
    ("Kubeflow's trainer", {**POD, "PET_NNODES": "2", "PET_NODE_RANK": "1"}, "auto", None,
     Share("own", note=f"launcher: Kubeflow (PET_NNODES=2, PET_NODE_RANK=1){OWN_NODE}")),
    ("an Indexed Job", {"JOB_COMPLETION_INDEX": "3"}, "auto", None,
     Share("own", note=f"launcher: Indexed Job (JOB_COMPLETION_INDEX=3){OWN_NODE}")),
    ("Ray", RAY, "auto", None, Share("own", note=(
        f"{ALL_IGNORED.replace(' in the', ' of Ray in the')}: no launcher is certain {HINT}"))),
    ("Ray, adopted by name", RAY, "env", None, BY_HAND),
    (
        "stray words that are no numbers",
        {"WORLD_SIZE": "many", "MASTER_PORT": ""},
        "auto",
        None,
        Share("own", note=f"WORLD_SIZE, MASTER_PORT in the environment ignored: no launcher is certain {HINT}"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "wanted", "nproc", "share"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_each_environment_gives_its_share(
    environment: dict[str, str], wanted: str, nproc: int | None, share: Share
) -> None:
    assert detect_share(environment, wanted, nproc) == share


@pytest.mark.parametrize(("rank", "reports"), [(None, True), (0, True), (1, False), (7, False)])
def test_only_a_parent_of_all_ranks_or_of_rank_0_reports(rank: int | None, reports: bool) -> None:
    assert Share("torchrun", rank, 8).reports is reports


def refusal(environment: dict[str, str], wanted: str = "auto") -> UsageError:
    with pytest.raises(UsageError) as caught:
        detect_share(environment, wanted, None)
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2
    return caught.value


@pytest.mark.parametrize("name", RANK_VARIABLES)
def test_a_launcher_that_left_a_variable_out_is_wrong_use_and_the_variable_is_named(name: str) -> None:
    for environment, wanted, launcher in ((TORCHRUN, "auto", "torchrun"), (RANKS, "env", "env")):
        without = {key: value for key, value in environment.items() if key != name}
        who = "the variables of torchrun" if launcher == "torchrun" else "--launcher env"
        assert refusal(without, wanted).message == f"{who}: {name} not set"


def test_adopting_what_is_not_there_names_all_that_is_missing() -> None:
    assert refusal({}, "env").message == (
        "--launcher env: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set"
    )


@pytest.mark.parametrize("name", RANK_VARIABLES[:4])
@pytest.mark.parametrize("text", ["", "one", "1.5", "0x1"])
def test_a_number_that_is_none_is_wrong_use(name: str, text: str) -> None:
    assert "whole numbers" in refusal({**TORCHRUN, name: text}).message


@pytest.mark.parametrize(
    "changes",
    [
        {"RANK": "4", "LOCAL_RANK": "4"},
        {"RANK": "-1", "LOCAL_RANK": "-1"},
        {"RANK": "0"},
        {"LOCAL_RANK": "0"},
        {"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"},
        {"WORLD_SIZE": "0", "LOCAL_WORLD_SIZE": "0"},
    ],
)
@pytest.mark.parametrize("base", [TORCHRUN, RANKS], ids=["torchrun", "env"])
def test_variables_that_contradict_each_other_are_wrong_use(base: dict[str, str], changes: dict[str, str]) -> None:
    assert "contradict each other" in refusal({**base, **changes}, "env").message


@pytest.mark.parametrize("wanted", ["auto", "env"])
def test_several_nodes_are_wrong_use_and_one_at_a_time_is_shown(wanted: str) -> None:
    error = refusal({**TORCHRUN, "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, wanted)
    assert error.message.startswith("16 ranks on several nodes (8 here)")
    assert "torchrun --nnodes 1" in str(error.next_step)


def test_a_command_that_somebody_typed_in_a_step_is_no_task_of_it() -> None:
    assert detect_share(SLURM, "auto", None, in_shell=True) == Share("own")
    assert detect_share(TORCHRUN, "auto", None, in_shell=True) == ADOPTED


CONTRADICTIONS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "Slurm and RANK": ({**SLURM, "RANK": "0", "WORLD_SIZE": "4"}, ("SLURM_PROCID=1", "RANK=0")),
    "Open MPI and RANK": ({**OMPI, "RANK": "0", "WORLD_SIZE": "2"}, ("OMPI_COMM_WORLD_RANK=1", "RANK=0")),
    "Open MPI and WORLD_SIZE": ({**OMPI, "RANK": "1", "WORLD_SIZE": "8"}, ("OMPI_COMM_WORLD_SIZE=2", "WORLD_SIZE=8")),
    "Slurm and Open MPI": ({**SLURM, **OMPI}, ("SLURM_STEP_NUM_TASKS=4", "OMPI_COMM_WORLD_SIZE=2")),
    "Open MPI and PMI": ({**OMPI, **HYDRA}, ("OMPI_COMM_WORLD_RANK=1", "PMI_RANK=0")),
    "a rank beyond the world": (of_mpi("OMPI", 2, 2, 1, 2), ("OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=2")),
    "more here than there are": (of_mpi("OMPI", 1, 2, 1, 4), ("LOCAL_SIZE=4", "SIZE=2")),
    "a local rank beyond": (of_mpi("MV2", 1, 4, 2, 2), ("LOCAL_RANK=2", "LOCAL_SIZE=2")),
    "two ranks of one node": ({**SLURM, "SLURM_LOCALID": "0"}, ("SLURM_PROCID=1", "SLURM_LOCALID=0")),
    "torchrun: more here than there are": ({**TORCHRUN, "LOCAL_WORLD_SIZE": "8"},
                                           ("WORLD_SIZE=4", "LOCAL_WORLD_SIZE=8")),
}  # fmt: skip


@pytest.mark.parametrize(("environment", "shown"), CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_contradictions_are_wrong_use_and_both_sides_are_shown(
    environment: dict[str, str], shown: tuple[str, ...]
) -> None:
    error = refusal(environment)
    assert "contradict each other" in error.message
    assert all(text in error.message for text in shown)
    assert "--nproc" in str(error.next_step)
    assert detect_share(environment, "auto", 2).launcher == "own"


ON_TWO = {**SLURM, "SLURM_STEP_NUM_TASKS": "16", "SLURM_STEP_TASKS_PER_NODE": "8(x2)"}
ON_THREE = {
    **SLURM, "SLURM_STEP_NUM_TASKS": "10", "SLURM_STEP_TASKS_PER_NODE": "4(x2),2", "SLURM_NODEID": "2",
    "SLURM_PROCID": "9",
}  # fmt: skip
SEVERAL_NODES = {
    "Slurm": (ON_TWO, 16, 8, "srun --ntasks-per-node 1"),
    "Slurm, uneven": (ON_THREE, 10, 2, "srun --ntasks-per-node 1"),
    "Open MPI": (of_mpi("OMPI", 9, 16, 1, 8), 16, 8, "mpirun --map-by ppr:1:node gpubalance bench"),
    "MPICH": ({**HYDRA, "PMI_SIZE": "4"}, 4, 2, "mpirun -ppn 1 gpubalance bench"),
}  # fmt: skip


@pytest.mark.parametrize(("environment", "world", "here", "command"), SEVERAL_NODES.values(), ids=SEVERAL_NODES.keys())
def test_several_nodes_of_any_launcher_are_wrong_use_with_the_right_command(
    environment: dict[str, str], world: int, here: int, command: str
) -> None:
    error = refusal(environment)
    assert error.message == f"{world} ranks on several nodes ({here} here): gpubalance judges one node at a time"
    assert command in str(error.next_step)


@pytest.mark.parametrize("base", [SLURM, OMPI, HYDRA, of_mpi("MV2", 1, 2, 1, 2)])
@pytest.mark.parametrize("text", ["", "-1", "1.0", "one", "9" * 30, "\u0661"])
def test_a_variable_of_slurm_or_mpi_that_is_no_number_is_wrong_use_and_named(base: dict[str, str], text: str) -> None:
    for name in base:
        if name not in ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_STEP_TASKS_PER_NODE", "PMIX_NAMESPACE"):
            assert refusal({**base, name: text}).message.startswith(f"{name}=")


@pytest.mark.parametrize("text", ["x", "8(x", "(x2)", "1,1"])
def test_tasks_a_node_that_cannot_be_read_are_wrong_use(text: str) -> None:
    error = refusal({**SLURM, "SLURM_STEP_TASKS_PER_NODE": text, "SLURM_NODEID": "2"})
    assert error.message == f"SLURM_STEP_TASKS_PER_NODE={text!r} has no number for node 2"


@pytest.mark.parametrize(("base", "name"), [(OMPI, "OMPI_COMM_WORLD_LOCAL_RANK"), (HYDRA, "MPI_LOCALNRANKS"),
                                            (SLURM, "SLURM_LOCALID")])  # fmt: skip
def test_a_launcher_that_tells_no_local_rank_is_wrong_use(base: dict[str, str], name: str) -> None:
    error = refusal({key: value for key, value in base.items() if key != name})
    assert error.message.endswith("not set")


def test_parents_of_one_run_share_a_key_and_a_restart_has_another() -> None:
    shares = [detect_share({**TORCHRUN, "RANK": str(r), "LOCAL_RANK": str(r)}, "auto", None) for r in range(4)]
    assert [share.rank for share in shares] == [0, 1, 2, 3]
    assert len({share.run_key for share in shares}) == 1
    again = detect_share({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "3"}, "auto", None)
    other_port = detect_share({**TORCHRUN, "MASTER_PORT": "29501"}, "auto", None)
    assert len({shares[0].run_key, again.run_key, other_port.run_key}) == 3


NAMES = sorted({*RANK_VARIABLES, "TORCHELASTIC_RUN_ID", "HOME", *SLURM, *OMPI, *HYDRA, *POD, *RAY, "PET_NNODES"})


@given(
    st.dictionaries(
        st.sampled_from(NAMES), st.text(max_size=3) | st.integers(0, 9).map(str) | st.just("2"), max_size=len(NAMES)
    ),
    st.sampled_from(["auto", "env", "none"]),
    st.none() | st.integers(1, 8),
)
@settings(deadline=None)
def test_any_environment_gives_a_possible_share_or_is_wrong_use(
    environment: dict[str, Any], wanted: str, nproc: int | None
) -> None:
    try:
        share = detect_share(environment, wanted, nproc)
    except UsageError:
        return
    if share.rank is None:
        assert (share.launcher, share.world, share.run_key) == ("own", None, "")
    else:
        assert share.run_key
        assert share.world is not None
        assert 0 <= share.rank < share.world

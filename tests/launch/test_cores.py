"""A core for each CPU rank, whoever bound it, and what is said of a binding that hurts."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.errors import UsageError
from gpubalance.launch.cores import bound, cpu_slots, one_core_each, seen_by_all
from gpubalance.launch.launcher_env import Share
from gpubalance.settings import BenchSettings
from gpubalance.testing.runs import make_node

NODE = make_node(cpu_cores=[0], cpu_effective=1.0, cpu_count=8)


def by_trying_all(masks: list[list[int]]) -> bool:
    """Whether any choice gives each rank a core of its own."""
    return any(len(set(choice)) == len(choice) for choice in product(*masks))


@pytest.mark.parametrize(
    ("masks", "cores"),
    [
        ([[0], [1]], [0, 1]),  # mpirun, two processes
        ([[1], [0]], [1, 0]),
        ([[0, 1, 2], [0, 1, 2]], [0, 1]),  # torchrun
        ([[0, 1], [2, 3]], [0, 2]),  # srun --cpus-per-task 2
        ([[0, 1], [0]], [1, 0]),
        ([[3], [3]], None),
        ([[0, 1], [0, 1], [0, 1]], None),
        ([[], [1]], None),
    ],
)
def test_each_rank_has_a_core_of_its_own_out_of_its_own_mask(masks: list[list[int]], cores: list[int] | None) -> None:
    assert one_core_each(masks) == cores


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3)), min_size=1, max_size=5))
def test_a_choice_is_found_wherever_there_is_one(boxes: list[tuple[int, int]]) -> None:
    """Masks of launchers: a core, a pair, a socket, the machine; one is apart from another or within it."""
    masks = [list(range(core >> level << level, (core >> level << level) + 2**level)) for core, level in boxes]
    cores = one_core_each(masks)
    assert (cores is not None) == by_trying_all(masks)
    for core, mask in zip(cores or [], masks, strict=False):
        assert core in mask
    assert len(set(cores or [])) == len(cores or [])


def test_ranks_that_a_launcher_bound_are_the_slots() -> None:
    slots = cpu_slots(NODE, BenchSettings(), 2, [[0], [5]])
    assert [slot.cpu_cores for slot in slots] == [[0], [5]]


def test_ranks_bound_to_one_core_are_refused_with_the_cure() -> None:
    with pytest.raises(UsageError) as caught:
        cpu_slots(NODE, BenchSettings(), 2, [[3], [3]])
    assert caught.value.message.startswith("the launcher binds 2 ranks to too few cores (rank 0: 3; rank 1: 3)")
    assert caught.value.next_step == "let it bind none (mpirun --bind-to none, srun --cpu-bind=none)"


@pytest.mark.parametrize(
    ("effective", "masks", "seen", "after"),
    [
        (1.0, [[0], [5]], [0, 5], 2.0),
        (0.5, [[0], [5]], [0, 5], 0.5),  # the quota of the control group
        (1.0, [], [0], 1.0),
    ],
)
def test_the_node_has_the_cores_of_all_ranks(
    effective: float, masks: list[list[int]], seen: list[int], after: float
) -> None:
    node = seen_by_all(make_node(cpu_cores=[0], cpu_effective=effective), masks)
    assert (node.cpu_cores, node.cpu_effective) == (seen, after)


@pytest.mark.parametrize(
    ("cores", "count", "share", "told"),
    [
        ([4], 128, Share("Open MPI", 0, 2, "key"), "Open MPI binds this rank to 1 of 128 CPUs, for NCCL's threads as"),
        ([4, 68], 128, Share("slurm", 0, 8, "key"), "slurm binds this rank to 2 of 128 CPUs"),
        ([4, 5, 68, 69], 128, Share("slurm", 0, 8, "key"), ""),
        ([0, 1], 2, Share("torchrun", 0, 2, "key"), ""),  # there are no more
        ([4], 128, Share("own"), ""),  # somebody bound the whole command
    ],
)
def test_a_binding_that_makes_a_gpu_rank_share_its_core_with_nccl_is_told(
    cores: list[int], count: int, share: Share, told: str
) -> None:
    notes = bound(make_node(cpu_cores=cores, cpu_count=count), share)
    assert len(notes) == bool(told)
    assert all(note.startswith(told) for note in notes)

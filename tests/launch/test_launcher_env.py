"""Who started this process: adopted only when it is certain."""

from __future__ import annotations

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

ADOPTED = Share("torchrun", 1, 4, "job-29500-2")
BY_HAND = Share("env", 1, 4, "env-29500-0")

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
    (
        "stray words that are no numbers",
        {"WORLD_SIZE": "many", "MASTER_PORT": ""},
        "auto",
        None,
        Share("own", note=f"WORLD_SIZE, MASTER_PORT in the environment ignored: no launcher is certain {HINT}"),
    ),
]


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


def test_parents_of_one_run_share_a_key_and_a_restart_has_another() -> None:
    shares = [detect_share({**TORCHRUN, "RANK": str(r), "LOCAL_RANK": str(r)}, "auto", None) for r in range(4)]
    assert [share.rank for share in shares] == [0, 1, 2, 3]
    assert len({share.run_key for share in shares}) == 1
    again = detect_share({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "3"}, "auto", None)
    other_port = detect_share({**TORCHRUN, "MASTER_PORT": "29501"}, "auto", None)
    assert len({shares[0].run_key, again.run_key, other_port.run_key}) == 3


@given(
    st.dictionaries(st.sampled_from([*RANK_VARIABLES, "TORCHELASTIC_RUN_ID", "HOME"]), st.text(max_size=3)),
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
        assert share.world is not None
        assert 0 <= share.rank < share.world

"""What the parent knows of a rank from the lines of its log."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.launch.rank_state import RankState

BEGIN = {"event": "phase_begin", "phase": "ddp"}
END = {"event": "phase_end", "phase": "ddp"}


def after(*events: dict[str, Any]) -> RankState:
    state = RankState(3)
    for event in events:
        state.take({"t_s": 0.0, **event})
    return state


def fence(number: int) -> dict[str, Any]:
    return {"event": "fence", "fence": number}


def test_a_rank_of_which_nothing_is_known_starts() -> None:
    state = RankState(3)
    assert (state.phase, state.progress, state.said_bye, state.error, state.exit_code) == (
        "start",
        (0, 0),
        False,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("events", "phase", "progress"),
    [
        ([BEGIN], "ddp", (1, 0)),
        ([BEGIN, fence(1), fence(2)], "ddp", (1, 2)),
        ([BEGIN, fence(2), END], "after ddp", (2, 0)),
        ([BEGIN, fence(2), END, {"event": "phase_begin", "phase": "collectives"}, fence(1)], "collectives", (3, 1)),
    ],
)
def test_progress_is_phases_and_the_fence_within_the_last(
    events: list[dict[str, Any]], phase: str, progress: tuple[int, int]
) -> None:
    state = after(*events)
    assert (state.phase, state.progress) == (phase, progress)


def test_progress_never_falls() -> None:
    events = [BEGIN, fence(1), fence(9), END, BEGIN, fence(1), END]
    seen = [after(*events[:count]).progress for count in range(len(events) + 1)]
    assert seen == sorted(seen)


def test_fences_are_counted_and_not_kept_because_there_is_one_a_step() -> None:
    state = after(BEGIN, fence(1), {"event": "block"}, fence(2))
    assert [event["event"] for event in state.events] == ["phase_begin", "block"]


def test_bye_error_and_death_are_remembered() -> None:
    error = {"event": "error", "where": "work", "message": "E"}
    state = after(error, {"event": "death", "exit_code": -9}, {"event": "bye"})
    assert state.error is not None
    assert state.error["message"] == "E"
    assert state.exit_code == -9
    assert state.said_bye


def test_every_line_is_a_sign_of_life() -> None:
    state = RankState(0, last_progress_s=-1.0)
    for event in (BEGIN, fence(1), {"event": "block"}, {"event": "unreadable"}):
        state.last_progress_s = -1.0
        state.take({"t_s": 0.0, **event})
        assert state.last_progress_s > 0

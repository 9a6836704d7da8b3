"""N1 to N4: links that are up, their speed and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.finding import State
from gpubalance.record.probe import NvLink, Probe
from tests.checks.probing.helpers import NO_PERMISSION, NOT_SUPPORTED, make_load, make_probe, only, states, worst
from tests.checks.probing.nodes import without_gpus

HUNG = {"failed": "nvmlDeviceGetNvLinkState did not return within 5 s"}
NO_LINKS: dict[str, Any] = {
    "links": [],
    **dict.fromkeys(("nvlink_replays", "nvlink_recoveries", "nvlink_crc_errors"), NOT_SUPPORTED),
}
NO_LINK_READINGS = {"nvlink_count": NOT_SUPPORTED, "nvlink_speed_mb_per_s": NOT_SUPPORTED}


def links(states: str) -> list[NvLink]:
    """1 is up, 0 is down, ? did not say."""
    active = {"1": True, "0": False, "?": None}
    return [NvLink(link=number, active=active[state], version=4) for number, state in enumerate(states)]


def linked(*rows: str, **values: Any) -> Probe:
    """GPUs with these links, as many as each says."""
    return make_probe([{"links": links(row)} for row in rows], [{"nvlink_count": len(row)} for row in rows], **values)


def no_links(count: int = 2, **values: Any) -> Probe:
    return make_probe([NO_LINKS] * count, [NO_LINK_READINGS] * count, **values)


# N1: links up


@pytest.mark.parametrize(
    ("rows", "expected", "state", "words"),
    [
        (("111111", "111111"), None, "pass", "6 of 6 NVLinks up on 2 GPUs"),
        (("111111", "111111", "111111", "111010"), None, "fail", "GPU 3: 4 of 6 NVLinks up, its peers 6"),
        (("111110", "111111"), None, "fail", "GPU 0: 5 of 6 NVLinks up, its peers 6"),
        (("111100", "111100"), None, "warn", "4 of 6 NVLinks up on each of 2 GPUs"),
        (("000000", "000000"), None, "warn", "0 of 6 NVLinks up on each of 2 GPUs"),
        (("111100", "111000"), None, "fail", "GPU 1: 3 of 6 NVLinks up, its peers 4"),
        (("111100",), None, "warn", "4 of 6 NVLinks up on 1 GPU"),
        (("111100", "111100"), 4, "pass", "4 of 6 NVLinks up on 2 GPUs"),
        (("111100", "111100"), 5, "fail", "GPU 0: 4 of 6 NVLinks up, 5 expected"),
        (("111111", "111111"), 4, "pass", "6 of 6 NVLinks up on 2 GPUs"),
        (("111111", "111100"), 4, "pass", "4 of 6 NVLinks up on 2 GPUs"),
        (("000000", "000000"), 0, "pass", "0 of 6 NVLinks up on 2 GPUs"),
        (("111111", "1111??"), None, "unknown", "GPU 1: 2 of 6 NVLinks did not say whether they are up"),
        (("111111", "1110??"), None, "fail", "GPU 1: 3 of 6 NVLinks up, its peers 6"),
        (("1111??", "1111??"), None, "unknown", "GPU 0: 2 of 6 NVLinks did not say whether they are up"),
        (("1111??", "1111??"), 4, "pass", "4 of 6 NVLinks up on 2 GPUs"),
    ],
)
def test_links_are_held_against_peers_or_what_the_user_expects(
    rows: Sequence[str], expected: int | None, state: str, words: str
) -> None:
    settings = {} if expected is None else {"expect_nvlinks": expected}
    found = worst(only("N1", linked(*rows, settings=settings)))
    assert found.state.value == state
    assert found.message == words


def test_a_missing_link_is_named_with_its_number_and_the_number_of_looks() -> None:
    found = only("N1", linked("111111", "110101", looks=3))
    assert states(found) == ["fail", "pass"]
    assert found[0].evidence == ("down: link 2, 4", "looked 3 times")
    assert (found[0].observed, found[0].expected) == ("4", "6")
    assert found[0].subject is not None
    assert "nvml:1" in found[0].subject


def test_links_down_on_all_can_be_settled_by_the_user() -> None:
    (found,) = only("N1", linked("110", "110"))
    assert found.next_step == "if 2 is right here, say so with --expect-nvlinks 2"


def test_other_models_and_mig_states_are_no_peers() -> None:
    rows = [{"links": links("111111")}, {"links": links("110000")}, {"links": links("100000")}]
    devices: list[dict[str, Any]] = [{}, {"name": "NVIDIA A100"}, {"mig_enabled": True}]
    found = only("N1", make_probe(rows, [{"nvlink_count": 6}] * 3, devices))
    assert states(found) == ["pass", "warn", "warn"]


def test_a_power_limit_makes_no_other_model() -> None:
    rows = [{"links": links("111111")}, {"links": links("111110")}]
    readings: list[dict[str, Any]] = [{"nvlink_count": 6}, {"nvlink_count": 6, "power_limit_w": 600.0}]
    assert worst(only("N1", make_probe(rows, readings))).state is State.FAIL


@pytest.mark.parametrize(
    ("look", "state", "words"),
    [
        (no_links(), "skip", "no NVLink on any GPU here"),
        (no_links(settings={"expect_nvlinks": 18}), "fail", "no NVLink on GPU 0, 1, 18 expected"),
        (make_probe([{"links": []}, {}], [{"nvlink_count": 0}, {}]), "skip", "no NVLink on GPU 0"),
        (make_probe([{"links": []}], [{"nvlink_count": NO_PERMISSION}]), "unknown", "NVLinks of GPU 0 not measured"),
        (make_probe([{"links": []}]), "unknown", "NVLinks of GPU 0 not measured: not read"),
        (make_probe([{"links": [], "nvlink_active": NO_PERMISSION}], [NO_LINK_READINGS]), "unknown",
         "NVLinks of GPU 0 not measured: NO_PERMISSION"),
        (make_probe([{"links": [], "nvlink_active": NOT_SUPPORTED}], [NO_LINK_READINGS]), "skip",
         "no NVLink on any GPU here"),
        (make_probe([{"links": [], "nvlink_active": ("GPU_IS_LOST",)}]), "unknown",
         "NVLinks of GPU 0 not measured: GPU_IS_LOST"),
        (make_probe([HUNG]), "unknown", f"NVLinks of GPU 0 not measured: {HUNG['failed']}"),
        (make_probe([HUNG], [NO_LINK_READINGS]), "unknown", "NVLinks of GPU 0 not measured"),
        (make_probe(**without_gpus()), "skip", "not applicable"),
    ],
)  # fmt: skip
def test_gpus_without_links_are_told_from_gpus_that_do_not_say(look: Probe, state: str, words: str) -> None:
    found = only("N1", look)[-1]
    assert found.state.value == state
    assert words in found.message


@given(ups=st.lists(st.integers(0, 6), min_size=1, max_size=8))
def test_exactly_those_with_fewer_links_than_the_best_fail(ups: list[int]) -> None:
    found = only("N1", linked(*("1" * up + "0" * (6 - up) for up in ups)))
    failed = sum(f.state is State.FAIL for f in found)
    assert failed == sum(up < max(ups) for up in ups)
    assert (State.PASS in {f.state for f in found}) == (max(ups) == 6)


# N2: speed


@pytest.mark.parametrize(
    ("speeds", "state", "words"),
    [
        ((26562, 26562), "pass", "NVLinks at 26.562 GB/s each on 2 GPUs"),
        ((26562, 25000), "fail", "GPU 1: NVLinks at 25 GB/s each, its peers 26.562"),
        ((26561, 26562), "fail", "GPU 0: NVLinks at 26.561 GB/s each, its peers 26.562"),
        ((53125,), "info", "NVLinks at 53.125 GB/s each on 1 GPU"),
        ((0, 0), "unknown", "NVLink speed not measured: no link is up"),
        ((NO_PERMISSION, NO_PERMISSION), "unknown", "NVLink speed not measured: NO_PERMISSION"),
        ((26562, NO_PERMISSION), "unknown", "NVLink speed on GPU 1 not measured: NO_PERMISSION"),
        ((NOT_SUPPORTED, NOT_SUPPORTED), "skip", "NVLink speed: not supported"),
    ],
)
def test_links_are_as_fast_as_those_of_peers(speeds: Sequence[Any], state: str, words: str) -> None:
    found = worst(only("N2", make_probe(readings=[{"nvlink_speed_mb_per_s": speed} for speed in speeds])))
    assert found.state.value == state
    assert found.message == words


def test_speeds_of_two_models_are_not_compared() -> None:
    speeds = [{"nvlink_speed_mb_per_s": speed} for speed in (26562, 26562, 53125, 53125)]
    other = {"name": "NVIDIA B200"}
    assert states(only("N2", make_probe(readings=speeds, devices=[{}, {}, other, other]))) == ["pass", "pass"]


def test_without_links_there_is_no_speed() -> None:
    assert states(only("N2", no_links())) == ["skip"]
    assert states(only("N2", make_probe(**without_gpus()))) == ["skip"]


# N3: errors


@pytest.mark.parametrize(
    ("counters", "expected", "words"),
    [
        ({}, ["pass"], "no NVLink error counted so far on 1 GPU"),
        ({"nvlink_replays": 1}, ["info"], "GPU 0 has counted 1 NVLink replay so far"),
        ({"nvlink_replays": 3, "nvlink_recoveries": 1, "nvlink_crc_errors": 7}, ["info"],
         "GPU 0 has counted 3 NVLink replays, 1 NVLink recovery, 7 NVLink CRC errors so far"),
        ({"nvlink_replays": NO_PERMISSION}, ["unknown"], "NVLink errors not measured: NO_PERMISSION"),
        ({"nvlink_replays": NOT_SUPPORTED}, ["skip"], "NVLink errors: not supported"),
        ({"nvlink_crc_errors": NOT_SUPPORTED}, ["pass"], "no NVLink error counted so far on 1 GPU"),
        (HUNG, ["unknown"], f"NVLink errors not measured: {HUNG['failed']}"),
    ],
)  # fmt: skip
def test_totals_since_the_driver_was_loaded_are_told_only(
    counters: dict[str, Any], expected: list[str], words: str
) -> None:
    found = only("N3", make_probe([counters]))
    assert states(found) == expected
    assert found[0].message == words


def growth(seconds: float = 10.0, **grown: tuple[int | None, int | None]) -> Probe:
    """Two GPUs under load; the counters of the second grow so."""
    quiet = {"nvlink_replays": (5, 5), "nvlink_recoveries": (0, 0), "nvlink_crc_errors": (9, 9)}
    return make_probe(load=make_load(counters=[quiet, {**quiet, **grown}], seconds=seconds))


@pytest.mark.parametrize(
    ("grown", "state", "words"),
    [
        ({}, "pass", "no new NVLink error under load on 2 GPUs"),
        ({"nvlink_replays": (5, 6)}, "fail", "GPU 1: 1 NVLink replay under load"),
        ({"nvlink_recoveries": (0, 2)}, "fail", "GPU 1: 2 NVLink recoveries under load"),
        ({"nvlink_crc_errors": (9, 10)}, "warn", "GPU 1: 1 NVLink CRC error under load"),
        ({"nvlink_crc_errors": (9, 1008)}, "warn", "GPU 1: 999 NVLink CRC errors under load"),  # 99.9 a second
        ({"nvlink_crc_errors": (9, 1009)}, "fail", "GPU 1: 1000 NVLink CRC errors under load"),  # 100 a second
        ({"nvlink_replays": (None, 5)}, "unknown", "new NVLink errors of GPU 1 not measured"),
        ({"nvlink_replays": (5, 4)}, "unknown", "new NVLink errors of GPU 1 not measured"),
    ],
)
def test_under_load_the_change_is_what_counts(grown: dict[str, Any], state: str, words: str) -> None:
    found = only("N3", growth(**grown))
    assert worst(found).state.value == state
    assert [f for f in found if f.state.value == state and f.message.startswith(words)]


def test_a_gpu_that_the_load_left_alone_has_no_change() -> None:
    quiet = {"nvlink_replays": (5, 5), "nvlink_recoveries": (0, 0), "nvlink_crc_errors": (9, 9)}
    found = only("N3", make_probe(load=make_load(counters=[quiet], devices=[1])))
    assert [f.message for f in found][-1] == "no new NVLink error under load on 1 GPU"


def test_gpus_without_links_have_no_errors_to_count() -> None:
    assert states(only("N3", no_links())) == ["skip"]


# N4: recoveries


@pytest.mark.parametrize(
    ("failures", "state", "words"),
    [
        (0, "pass", "no NVLink recovery failed on 1 GPU"),
        (1, "fail", "GPU 0 failed to recover an NVLink since the driver was loaded"),
        (NOT_SUPPORTED, "skip", "failed NVLink recoveries: not supported"),
        (("FUNCTION_NOT_FOUND",), "skip", "failed NVLink recoveries: not supported"),
        (NO_PERMISSION, "unknown", "failed NVLink recoveries not measured: NO_PERMISSION"),
    ],
)
def test_a_link_that_could_not_be_recovered_fails(failures: Any, state: str, words: str) -> None:
    (found,) = only("N4", make_probe([{"nvlink_recovery_failed": failures}]))
    assert found.state.value == state
    assert found.message == words


def test_a_gpu_that_hung_may_have_lost_links() -> None:
    assert states(only("N4", make_probe([HUNG]))) == ["unknown"]

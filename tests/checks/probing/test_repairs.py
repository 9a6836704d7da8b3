"""M5 to M9: repairs of memory, and what a GPU waits for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checks.probing.helpers import NO_PERMISSION, NOT_SUPPORTED, make_probe, only, states, worst

KEYS = {
    "M5": ("rows_remapped_correctable", "rows_remapped_uncorrectable", "rows_remap_pending", "rows_remap_failed"),
    "M6": ("rows_remapped_uncorrectable", "row_banks_low", "row_banks_none"),
    "M7": ("retired_pages_single_bit", "retired_pages_double_bit", "retired_pages_pending"),
    "M8": ("recovery_action",),
    "M9": ("inforom_valid", "channel_repair_pending", "tpc_repair_pending"),
}
CASES = [(check, key) for check, keys in KEYS.items() for key in keys]
OLD = {"retired_pages_single_bit": 0, "retired_pages_double_bit": 0, "retired_pages_pending": 0}
"""What a GPU before Ampere has."""


@pytest.mark.parametrize("check", KEYS)
def test_healthy_gpus_pass_and_none_at_all_do_not(check: str) -> None:
    assert set(states(only(check, make_probe([OLD, OLD])))) == {"pass"}
    assert states(only(check, make_probe(count=0))) == ["skip"]


@pytest.mark.parametrize(("check", "key"), CASES)
@pytest.mark.parametrize(
    ("reason", "state"),
    [(NOT_SUPPORTED, "skip"), (NO_PERMISSION, "unknown"), (("SENTINEL",), "unknown"), (("GPU_IS_LOST",), "unknown")],
)
def test_a_number_that_is_missing_never_passes_for_its_gpu(
    check: str, key: str, reason: tuple[str], state: str
) -> None:
    found = only(check, make_probe([OLD, {**OLD, key: reason}]))
    without = [f for f in found if f.state.value == state]
    assert len(without) == 1
    assert "on GPU 1" in without[0].message
    assert any(f.state.value == "pass" and f.message.endswith("on 1 GPU") for f in found)


@pytest.mark.parametrize("check", KEYS)
def test_a_gpu_that_hung_is_unknown(check: str) -> None:
    found = only(check, make_probe([{"failed": "nvmlDeviceGetRemappedRows of GPU 0 never returned"}]))
    assert set(states(found)) == {"unknown"}
    assert all(f.message.endswith("nvmlDeviceGetRemappedRows of GPU 0 never returned") for f in found)


@pytest.mark.parametrize(
    ("correctable", "uncorrectable", "pending", "failed", "state"),
    [
        (0, 0, 0, 0, "pass"),
        (0, 4, 1, 0, "warn"),
        (0, 4, 0, 0, "info"),
        (2, 0, 0, 0, "info"),
        (0, 0, 0, 1, "fail"),
        (0, 4, 1, 1, "fail"),
        (0, 0, 1, 0, "warn"),
    ],
)
def test_remapped_rows(correctable: int, uncorrectable: int, pending: int, failed: int, state: str) -> None:
    gpu = dict(zip(KEYS["M5"], (correctable, uncorrectable, pending, failed), strict=True))
    found = only("M5", make_probe([{}, gpu]))
    assert worst(found).state.value == state
    assert ("pass" in states(found)) is (state in ("pass", "info"))


@pytest.mark.parametrize(
    ("gpu", "message", "step"),
    [
        ({"rows_remap_failed": 1}, "GPU 1 could not remap a broken memory row", "replaced"),
        ({"rows_remap_pending": 1}, "GPU 1 waits for a reset to remap a memory row", "reset it before the next job"),
        ({"rows_remapped_uncorrectable": 1}, "GPU 1 has repaired 1 memory row for good", None),
    ],
)
def test_what_to_do_about_rows(gpu: dict[str, int], message: str, step: str | None) -> None:
    found = worst(only("M5", make_probe([{}, gpu])))
    assert found.message == message
    assert (found.next_step is None) if step is None else (step in (found.next_step or ""))


@given(numbers=st.tuples(*[st.integers(0, 600)] * 2, *[st.integers(0, 1)] * 2))
def test_rows_are_judged_by_their_worst_number(numbers: tuple[int, int, int, int]) -> None:
    gpu = dict(zip(KEYS["M5"], numbers, strict=True))
    repaired = "info" if numbers[0] + numbers[1] else "pass"
    expected = "fail" if numbers[3] else "warn" if numbers[2] else repaired
    assert worst(only("M5", make_probe([gpu]))).state.value == expected


@pytest.mark.parametrize(("rows", "state"), [(0, "pass"), (511, "pass"), (512, "fail")])
def test_many_remapped_rows_fail(rows: int, state: str) -> None:
    assert worst(only("M6", make_probe([{"rows_remapped_uncorrectable": rows}]))).state.value == state


@pytest.mark.parametrize(
    ("partial", "low", "none", "state"), [(9, 0, 0, "pass"), (0, 1, 0, "warn"), (0, 0, 1, "warn"), (0, 2, 1, "warn")]
)
def test_a_bank_short_of_spare_rows_warns(partial: int, low: int, none: int, state: str) -> None:
    gpu = {"row_banks_partial": partial, "row_banks_low": low, "row_banks_none": none}
    assert worst(only("M6", make_probe([gpu]))).state.value == state


def test_banks_are_counted() -> None:
    found = worst(only("M6", make_probe([{"row_banks_low": 2, "row_banks_none": 1}])))
    assert found.message == "GPU 0 has few or no spare rows in 3 memory banks"
    assert found.observed == "2 banks with few, 1 with none"


@pytest.mark.parametrize(
    ("single", "double", "pending", "state"),
    [
        (0, 0, 0, "pass"),
        (3, 0, 0, "info"),
        (0, 14, 0, "info"),
        (0, 15, 0, "warn"),
        (61, 1, 0, "info"),
        (62, 1, 0, "fail"),
        (0, 63, 1, "fail"),
        (0, 0, 1, "warn"),
    ],
)
def test_retired_pages(single: int, double: int, pending: int, state: str) -> None:
    gpu = dict(zip(KEYS["M7"], (single, double, pending), strict=True))
    assert worst(only("M7", make_probe([gpu]))).state.value == state


@pytest.mark.parametrize(
    ("action", "state", "words"),
    [
        (0, "pass", None),
        (1, "warn", "a reset"),
        (2, "fail", "a reboot of the node"),
        (3, "warn", "an end of all peer-to-peer jobs"),
        (4, "fail", "to be drained and reset"),
        (5, "warn", "a recovery of its IMEX domain"),
        (6, "fail", "a reset of its bus"),
        (7, "fail", "a reboot of the system"),
        (8, "warn", "recovery action 8"),
    ],
)
def test_what_the_driver_asks_for_is_said_in_words(action: int, state: str, words: str | None) -> None:
    found = worst(only("M8", make_probe([{}, {"recovery_action": action}])))
    assert found.state.value == state
    assert found.message == (f"GPU 1 asks for {words}" if words else "no recovery action asked for on 2 GPUs")
    assert (found.next_step is not None) is (action != 0)


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        ({"inforom_valid": 0}, "GPU 0 has a corrupted InfoROM"),
        ({"channel_repair_pending": 1}, "GPU 0 waits for a reset to repair a memory channel"),
        ({"tpc_repair_pending": 1}, "GPU 0 waits for a reset to repair a TPC"),
        (
            {"channel_repair_pending": 1, "tpc_repair_pending": 1},
            "GPU 0 waits for a reset to repair a memory channel and a TPC",
        ),
    ],
)
def test_a_corrupted_board_record_and_pending_repairs_fail(gpu: dict[str, Any], message: str) -> None:
    found = only("M9", make_probe([gpu]))
    assert sorted(states(found)) == ["fail", "pass"]
    assert worst(found).message == message

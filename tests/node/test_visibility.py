"""CUDA_VISIBLE_DEVICES in every form that was seen in the wild, as torch 2.13 reads it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubalance.node.visibility import Visible, match_uuid, read_visibility

FOUR = (
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "GPU-8932a111-0000-4106-c12f-20bd9faed9f6",
    "GPU-1111b222-0000-4106-c12f-20bd9faed9f6",
    "GPU-2222c333-0000-4106-c12f-20bd9faed9f6",
)
NOT_A_WORD = "not an index: kinds of entry cannot be mixed, and CUDA knows no such word"
NO_SUCH_UUID = "no GPU has a UUID that begins so"
NOT_A_UUID = "not a GPU UUID: kinds of entry cannot be mixed"

TABLE = [
    (None, (0, 1, 2, 3), {}),
    ("", (), {"": "set but empty, which hides every device"}),
    ("  ", (), {"": "set but empty, which hides every device"}),
    ("-1", (), {"-1": "negative, which hides the rest of the list"}),
    ("all", (), {"all": NOT_A_WORD}),
    ("none", (), {"none": NOT_A_WORD}),
    ("void", (), {"void": NOT_A_WORD}),
    ("NoDevFiles", (), {"NoDevFiles": NOT_A_WORD}),
    ("0", (0,), {}),
    ("0,1,2,3", (0, 1, 2, 3), {}),
    ("0,-1,1", (0,), {"-1": "negative, which hides the rest of the list", "1": "not read: the list ends at '-1'"}),
    ("0,,1", (0,), {"": "empty", "1": "not read: the list ends at ''"}),
    ("1,", (1,), {"": "empty"}),
    ("3,1", (3, 1), {}),
    (" 1 , 0", (1, 0), {}),
    ("1gpu2,2ampere", (1, 2), {}),
    ("+2", (2,), {}),
    ("0-2", (0,), {}),
    ("99", (), {"99": "there are only 4 GPUs"}),
    ("0,4,1", (0,), {"4": "there are only 4 GPUs", "1": "not read: the list ends at '4'"}),
    ("GPU-8932f937", (0,), {}),
    ("GPU-1111,GPU-8932a", (2, 1), {}),
    (FOUR[3], (3,), {}),
    ("GPU-8932", (), {"GPU-8932": "ambiguous: 2 GPUs have a UUID that begins so"}),
    ("GPU-", (), {"GPU-": "ambiguous: 4 GPUs have a UUID that begins so"}),
    (
        "GPU-1111,GPU-zzz,GPU-8932a",
        (2,),
        {"GPU-zzz": NO_SUCH_UUID, "GPU-8932a": "not read: the list ends at 'GPU-zzz'"},
    ),
    ("GPU-8932f937,0", (0,), {"0": NOT_A_UUID}),
    ("0,GPU-8932f937", (0,), {"GPU-8932f937": NOT_A_WORD}),
    (
        "MIG-1111,MIG-2222",
        (),
        {
            "MIG-1111": "a MIG slice: at most one can be used, and NCCL does not work on it",
            "MIG-2222": "not read: the list ends at 'MIG-1111'",
        },
    ),
]


@pytest.mark.parametrize(("value", "indices", "dropped"), TABLE, ids=[repr(row[0]) for row in TABLE])
def test_each_value_yields_its_devices_and_every_dropped_entry_has_its_reason(
    value: str | None, indices: tuple[int, ...], dropped: dict[str, str]
) -> None:
    visible = read_visibility(value, FOUR)
    assert visible.indices == indices
    assert [(d.entry, d.reason) for d in visible.dropped] == list(dropped.items())


@pytest.mark.parametrize(
    ("value", "culprit"),
    [("0,0", "0"), ("1,2,1", "1"), ("2,2x", "2x"), ("GPU-1111,GPU-1111b", "GPU-1111b"), ("0,0,99,none", "0")],
)
def test_a_repeated_device_empties_the_list_and_drops_all_entries_for_that_reason(value: str, culprit: str) -> None:
    visible = read_visibility(value, FOUR)
    assert visible.indices == ()
    assert [d.entry for d in visible.dropped] == value.split(",")
    assert {d.reason for d in visible.dropped} == {f"{culprit!r} repeats a device, which empties the list"}


def test_an_index_beyond_the_only_gpu_is_worded_for_one_gpu() -> None:
    assert read_visibility("1", FOUR[:1]).dropped[0].reason == "there is only 1 GPU"


def test_without_any_gpu_nothing_is_visible_and_the_entry_is_dropped() -> None:
    assert read_visibility(None, ()) == Visible(())
    assert read_visibility("0", ()).dropped[0].reason == "there are only 0 GPUs"


def test_a_gpu_without_a_uuid_is_reached_by_index_only() -> None:
    uuids = (None, FOUR[2])
    assert read_visibility("0,1", uuids).indices == (0, 1)
    assert read_visibility("GPU-1111", uuids).indices == (1,)


def test_a_number_of_thousands_of_digits_is_an_index_that_is_too_large() -> None:
    visible = read_visibility("9" * 5000, FOUR)
    assert visible.indices == ()
    assert [d.reason for d in visible.dropped] == ["there are only 4 GPUs"]


ENTRIES = st.one_of(
    st.sampled_from(["0", "1", " 2 ", "3x", "-1", "", "99", "none", "all", "GPU-8932f", "GPU-8932", "GPU-1", "MIG-1"]),
    st.text(max_size=8),
)
VALUES = st.one_of(st.text(), st.lists(ENTRIES, max_size=6).map(",".join))


@given(VALUES, st.integers(0, 4))
@example("²", 4)  # a digit for str.isdigit, not for int()
@example("٣", 4)  # Arabic three, a digit for both
@example("\x00", 4)
@settings(deadline=None)
def test_any_text_is_read_without_an_error_and_yields_distinct_indices_within_range(value: str, count: int) -> None:
    indices = read_visibility(value, FOUR[:count]).indices
    assert len(set(indices)) == len(indices)
    assert set(indices) <= set(range(count))


@given(VALUES, st.integers(0, 4))
@settings(deadline=None)
def test_entries_kept_and_dropped_account_for_all_entries_in_order(value: str, count: int) -> None:
    visible = read_visibility(value, FOUR[:count])
    entries = [entry.strip() for entry in value.split(",")]
    assert len(visible.indices) + len(visible.dropped) == len(entries)
    assert [d.entry for d in visible.dropped] == entries[len(visible.indices) :]
    assert all(d.reason for d in visible.dropped)


@given(st.text())
@settings(deadline=None)
def test_only_the_beginning_of_a_uuid_ever_matches_a_gpu(beginning: str) -> None:
    found = match_uuid(beginning, FOUR)
    if isinstance(found, int):
        assert FOUR[found].startswith(beginning)
    else:
        assert found

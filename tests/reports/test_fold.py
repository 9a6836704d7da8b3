"""Folding of text: once, at spaces only, for any width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.reports.fold import Line, fold, paragraph, put_together

WORDS = st.text(st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), min_size=1, max_size=50)


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


@given(st.lists(WORDS, min_size=1), st.integers(0, 12), st.integers(0, 12), st.integers(40, 200))
def test_a_fold_keeps_every_word_whole_and_below_the_hang_unless_an_id_would_not_fit(
    words: list[str], own: int, hang: int, width: int
) -> None:
    (first, *others) = texts(fold([paragraph(" " * own + " ".join(words), " " * hang)], width))
    assert " ".join([first, *others]).split() == words
    assert all(len(line) <= width or len(line.split()) == 1 for line in (first, *others))
    longest = max(map(len, words))
    if own + longest <= width:
        expected = max(0, min(max(own, hang), width - longest))
        assert all(line.startswith(" " * expected) for line in others)
        assert all(len(line) <= width for line in (first, *others))


@given(st.lists(WORDS, min_size=1), st.integers(40, 200))
def test_folding_what_is_folded_changes_nothing(words: list[str], width: int) -> None:
    once = fold([paragraph(" ".join(words))], width)
    again = fold([paragraph(line.text) for line in once], width)
    assert texts(again) == texts(once)


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [
        (paragraph(""), 10, [""]),
        (paragraph("as wide as it"), 13, ["as wide as it"]),
        (paragraph("as wide as it"), 12, ["as wide as", "it"]),
        (paragraph("FAIL  one two three", " " * 6), 12, ["FAIL  one", "      two", "      three"]),
        (paragraph("   - one two", " " * 5), 8, ["   - one", "     two"]),
        (paragraph("   own place"), 8, ["   own", "   place"]),
        (paragraph("FAIL  a GPU-11112222", " " * 6), 12, ["FAIL  a", "GPU-11112222"]),
        (Line("a row of a table"), 5, ["a row of a table"]),
        (paragraph("\x1b[31mred"), 80, ["\\x1b[31mred"]),
    ],
)
def test_what_a_line_becomes(line: Line, width: int, expected: list[str]) -> None:
    assert texts(fold([line], width)) == expected


def test_a_style_is_that_of_all_parts_and_sections_that_say_nothing_leave_no_gap() -> None:
    lines = put_together([[paragraph("FAIL one two", style="fail")], [], [Line("table")]], 8)
    assert [(line.text, line.style) for line in lines] == [
        ("FAIL one", "fail"),
        ("two", "fail"),
        ("", ""),
        ("table", ""),
    ]

"""Nothing that a terminal would obey instead of showing it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.reports.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA Übertragung 超", "NVIDIA Übertragung 超"),
        ("", ""),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b31m", r"\x9b31m"),
        ("bell\x07", r"bell\x07"),
        ("back\x08space", r"back\x08space"),
        ("nul\x00", r"nul\x00"),
        ("one\ntwo\r\nthree\tfour", "one two  three four"),
        ("\u200fright to left\u202e", r"\u200fright to left\u202e"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("no\xa0break\u2028line", "no break line"),
        ("not text \udcff", r"not text \udcff"),
        ("backslash \\x1b", "backslash \\x1b"),
    ],
)
def test_text_is_shown_and_never_obeyed(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_any_text_becomes_printable_and_encodable_on_one_line(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown.encode("utf-8").decode("utf-8") == shown


@given(st.text())
def test_what_is_printable_stays_as_it_is(text: str) -> None:
    assert printable(printable(text)) == printable(text)

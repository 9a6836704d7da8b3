"""How shares are written."""

from __future__ import annotations

import pytest

from gpubalance.checks.finding import listed, percent


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.143, "14.3 %"),
        (0.2, "20 %"),
        (1.0, "100 %"),
        (0.0, "0 %"),
        (0.0004, "0 %"),
        (-0.025, "-2.5 %"),
        (2.5, "250 %"),
    ],
)
def test_a_share_is_written_with_the_digits_that_matter(share: float, text: str) -> None:
    assert percent(share) == text


def test_next_to_nothing_has_no_sign() -> None:
    assert percent(-0.0001) == "0 %"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([7], "7"), ([3, 2], "3, 2"), ([1, 2, 3, 4], "1, 2, 3 and 1 more")],
)
def test_of_many_numbers_the_first_are_listed(numbers: list[int], text: str) -> None:
    assert listed(numbers, 3) == text

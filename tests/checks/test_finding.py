"""How shares are written."""

from __future__ import annotations

import pytest

from gpubalance.checks.finding import percent


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

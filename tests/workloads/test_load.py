"""The active check on the CPU: what it calls right must be right, and what it calls wrong must be wrong."""

from __future__ import annotations

import pytest
import torch

from gpubalance.workloads import load
from gpubalance.workloads.load import matmul_error, repeated_digest

CPU = torch.device("cpu")


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_right_product_is_within_what_rounding_allows(dtype: torch.dtype) -> None:
    assert 0 < matmul_error(CPU, dtype, seeded()) <= 1


def test_one_wrong_element_of_a_quarter_million_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.Tensor.__matmul__

    def wrong(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product = right(a, b)
        if a.dtype is torch.bfloat16:
            product[17, 33] += 2.0  # a tenth of a typical element
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", wrong)
    assert matmul_error(CPU, torch.bfloat16, seeded()) > 1


def test_a_product_that_is_no_number_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor, "__matmul__", lambda a, b: right(a, b) * (float("nan") if a.dtype is torch.bfloat16 else 1)
    )
    assert matmul_error(CPU, torch.bfloat16, seeded()) > 1


def test_the_same_seed_gives_the_same_digest_and_another_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "LARGE_EDGE", 128)
    first = repeated_digest(CPU, torch.bfloat16, seeded())
    assert first == repeated_digest(CPU, torch.bfloat16, seeded())
    assert first[1] == 0
    assert first[0] != repeated_digest(CPU, torch.bfloat16, torch.Generator().manual_seed(8))[0]


def test_repetitions_that_differ_in_one_bit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "LARGE_EDGE", 64)
    right = torch.Tensor.__matmul__
    calls = {"made": 0}

    def now_and_then(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product = right(a, b)
        calls["made"] += 1
        if calls["made"] % 10 == 0:
            product.view(torch.int16)[3, 5] ^= 1
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", now_and_then)
    assert repeated_digest(CPU, torch.bfloat16, seeded())[1] == 5

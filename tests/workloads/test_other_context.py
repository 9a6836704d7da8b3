"""The forgotten context, against a driver that writes down what it is asked."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from gpubalance.workloads.other_context import HELD_BYTES, context_on


class Driver:
    """Answers success to every call, but the code to the one that is to fail."""

    def __init__(self, fails: str = "", code: int = 2) -> None:
        self.calls: list[str] = []
        self.sizes: list[int] = []
        self._fails, self._code = fails, code

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*values: Any) -> int:
            self.calls.append(name)
            self.sizes += [value.value for value in values if isinstance(value, ctypes.c_size_t)]
            return self._code if name == self._fails else 0

        return call


MADE = ["cuDeviceGet", "cuCtxCreate_v2", "cuMemAlloc_v2", "cuMemsetD8_v2", "cuCtxSynchronize", "cuCtxPopCurrent_v2"]


def test_a_context_with_its_memory_is_made_left_and_destroyed() -> None:
    driver = Driver()
    with context_on(1, driver):
        assert driver.calls == MADE  # popped: whatever was current is current again
    assert driver.calls == [*MADE, "cuCtxDestroy_v2"]
    assert driver.sizes.count(HELD_BYTES) == 2  # taken and written


@pytest.mark.parametrize("call", MADE)
def test_a_driver_that_refuses_is_an_error_and_keeps_no_context(call: str) -> None:
    driver = Driver(call)
    refused = pytest.raises(RuntimeError, match=rf"{call.removesuffix('_v2')} failed with CUDA driver error 2")
    with refused, context_on(1, driver):
        pytest.fail("nothing is played")
    made = MADE.index(call) >= 2
    assert ("cuCtxPopCurrent_v2" in driver.calls) == made
    assert ("cuCtxDestroy_v2" in driver.calls) == made


def test_an_error_in_the_pass_destroys_the_context() -> None:
    driver = Driver()
    with pytest.raises(MemoryError), context_on(1, driver):
        raise MemoryError
    assert driver.calls[-1] == "cuCtxDestroy_v2"

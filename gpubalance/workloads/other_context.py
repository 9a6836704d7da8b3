"""A CUDA context of this process on somebody else's device, as a forgotten `cuda:0` in a script makes one.

Made with the driver itself, because a context that torch makes stays until the process ends, and the passes after this
one must be healthy. https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__CTX.html
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HELD_BYTES = 512 * 2**20
_FILL = 0x5A


@contextmanager
def context_on(ordinal: int, driver: Any = None) -> Iterator[None]:
    """Hold a context and 512 MiB on this CUDA device, then destroy both. The current context stays what it was.

    Raises RuntimeError with the driver's code when it refuses.
    """
    cuda = driver if driver is not None else ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _check(cuda.cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
    _check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device), "cuCtxCreate")
    try:
        try:
            _hold(cuda)
        finally:
            _check(cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())), "cuCtxPopCurrent")
        yield
    finally:
        _check(cuda.cuCtxDestroy_v2(context), "cuCtxDestroy")


def _hold(cuda: Any) -> None:
    """Memory of the current context; it is freed with the context."""
    pointer, size = ctypes.c_uint64(), ctypes.c_size_t(HELD_BYTES)
    _check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), size), "cuMemAlloc")
    _check(cuda.cuMemsetD8_v2(pointer, ctypes.c_ubyte(_FILL), size), "cuMemsetD8")
    _check(cuda.cuCtxSynchronize(), "cuCtxSynchronize")


def _check(code: int, call: str) -> None:
    if code:
        raise RuntimeError(f"{call} failed with CUDA driver error {code}")

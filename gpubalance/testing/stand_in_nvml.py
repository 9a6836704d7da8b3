"""A stand-in for the NVML library, driven through the real binding: decoding, struct versions and missing symbols
included, which replacing the binding's functions would hide.

A profile is JSON:

    {
      "system": {"DriverVersion": "580.1", "NVMLVersion": "13.580", "CudaDriverVersion": 13000},
      "devices": [{"Name": "NVIDIA H200", "PowerUsage": 80000, "ClockInfo": {"1": 345}, ...}, ...],
      "absent": ["nvmlDeviceGetMemoryInfo_v2"],
      "faults": [{"call": "nvmlDeviceGetName", "device": 0, "error": 15, "after": 20}],
      "xids": [{"device": 0, "xid": 79, "after": 5}]
    }

Keys of a device are calls without `nvmlDeviceGet` (or `nvmlDevice`). A value is

- a number, a string, or a list of numbers (one for each output, each word of a CPU mask, each retired page),
- a table of struct fields,
- a table by what the arguments select (`ClockInfo` by clock type, `P2PStatus` by other GPU and kind: "1,0"), where
  "*" stands for all others,
- `{"error": 4}`: this call alone is refused with this code.

`FieldValues` is a table by field id of numbers, `{"type": "double", "value": 1.5}` or `{"error": 4}`. A call without
a value answers NOT_SUPPORTED.

A fault acts from its call number `after` on: an `error` code, a `delay_s`, a `value` (nonsense with success; in every
field of a struct and every entry of a list), `bytes` (hexadecimal, for strings that cannot be decoded), or the end of
the process by `exit` (a code) or `signal` (a number). Its `call` may be "*": every call on a handle. An Xid is offered
once, from the wait for events number `after` on.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpubalance.testing.stand_in_calls import SUCCESS, TIMEOUT, Call, answer, device_of, handle_of

_HANDLE = "nvmlDeviceGetHandleByIndex_v2"


class StandIn:
    """Takes the place of the library handle inside the binding; an attribute is a C function."""

    def __init__(self, profile: dict[str, Any]) -> None:
        self._profile = profile
        self._pending: list[dict[str, int]] = list(profile.get("xids", ()))
        self.calls: Counter[tuple[str, int | None]] = Counter()
        """How often each function was called, by name and device."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml") or name in self._profile.get("absent", ()):
            raise AttributeError(name)
        return lambda *arguments: self._call(name, arguments)

    def _call(self, name: str, arguments: tuple[Any, ...]) -> int:
        device = device_of(arguments[0]) if arguments else None
        self.calls[name, device] += 1
        meant = int(arguments[0].value) if name == _HANDLE else device
        fault = self._fault(name, device, meant)
        _suffer(fault)
        if "error" in fault:
            return int(fault["error"])
        if name == "nvmlEventSetWait_v2":
            return self._next_xid(arguments[1]._obj)  # noqa: SLF001  (what byref points to has no public name)
        return answer(Call(name, device, arguments, self._profile, fault))

    def _next_xid(self, event: Any) -> int:
        waits = sum(count for (name, _), count in self.calls.items() if name == "nvmlEventSetWait_v2")
        for xid in self._pending:
            if waits > xid.get("after", 0):
                self._pending.remove(xid)
                event.device = handle_of(xid["device"], type(event.device))
                event.eventData = xid["xid"]
                return SUCCESS
        return TIMEOUT

    def _fault(self, name: str, device: int | None, meant: int | None) -> dict[str, Any]:
        """`meant` is the device that the call is about; only the call for a handle has no device yet."""
        for fault in self._profile.get("faults", ()):
            on = meant if fault["call"] == name else device
            matches = fault["call"] in (name, "*") and fault.get("device") in (None, on)
            if matches and self.calls[name, device] > fault.get("after", 0):
                return dict(fault)
        return {}


def _suffer(fault: dict[str, Any]) -> None:
    """What a fault does to the process before the call answers."""
    time.sleep(fault.get("delay_s", 0))
    if "exit" in fault:
        os._exit(fault["exit"])
    if "signal" in fault:
        os.kill(os.getpid(), fault["signal"])


def install(profile: Path | dict[str, Any]) -> StandIn:
    """Put a stand-in in place of the library; the binding believes that it has been loaded."""
    binding = importlib.import_module("pynvml")
    values = json.loads(profile.read_text()) if isinstance(profile, Path) else profile
    stand_in = StandIn(values)
    setattr(binding, "nvmlLib", stand_in)  # noqa: B010  (the stubless binding has no such name for a type checker)
    binding._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001  (functions of the real library must not linger)
    return stand_in


@contextmanager
def installed(profile: Path | dict[str, Any]) -> Iterator[StandIn]:
    """The stand-in for the length of a block; afterwards the binding is as it was."""
    binding = importlib.import_module("pynvml")
    before = {name: getattr(binding, name) for name in ("nvmlLib", "_nvmlLib_refcount")}
    try:
        yield install(profile)
    finally:
        vars(binding).update(before)
        binding._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001

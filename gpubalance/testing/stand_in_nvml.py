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

Keys of a device are calls without `nvmlDeviceGet`. A value is a number, a string, a list of numbers (one for each
output), a table by selector (`ClockInfo` by clock type), or a table of struct fields. A call without a value answers
NOT_SUPPORTED. A fault acts from its call number `after` on: an `error` code, a `delay_s`, a `value` (nonsense with
success; in every field of a struct), or `bytes` (hexadecimal, for strings that cannot be decoded). An Xid is offered
once, from the wait for events number `after` on.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SUCCESS, NOT_SUPPORTED, INSUFFICIENT_SIZE, TIMEOUT = 0, 3, 7, 10
_SELECTED = frozenset({"ClockInfo", "MaxClockInfo", "Temperature", "TotalEccErrors", "ViolationStatus"})
"""Calls whose arguments between handle and output choose the value."""


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
        device = _index_of(arguments[0]) if arguments else None
        self.calls[name, device] += 1
        fault = self._fault(name, device)
        time.sleep(fault.get("delay_s", 0))
        if "error" in fault:
            return int(fault["error"])
        if name == "nvmlEventSetWait_v2":
            return self._next_xid(arguments[1]._obj)  # noqa: SLF001  (what byref points to has no public name)
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self._profile, device, arguments)
        if name.startswith("nvmlSystemGet"):
            value = self._profile["system"].get(name.removeprefix("nvmlSystemGet"))
            return _fill(arguments, _nonsense(fault, value))
        if device is None or device >= len(self._profile["devices"]):
            return NOT_SUPPORTED
        return self._device_call(name, device, arguments, fault)

    def _device_call(self, name: str, device: int, arguments: tuple[Any, ...], fault: dict[str, Any]) -> int:
        key = name.removeprefix("nvmlDeviceGet")
        value = self._profile["devices"][device].get(key)
        if key in _SELECTED and isinstance(value, dict):
            chosen = ",".join(str(a.value) for a in arguments[1:-1])
            value = value.get(chosen)
        return _fill(arguments[1:], _nonsense(fault, value))

    def _next_xid(self, event: Any) -> int:
        waits = sum(count for (name, _), count in self.calls.items() if name == "nvmlEventSetWait_v2")
        for xid in self._pending:
            if waits > xid.get("after", 0):
                self._pending.remove(xid)
                event.device = ctypes.cast(ctypes.c_void_p(xid["device"] + 1), type(event.device))
                event.eventData = xid["xid"]
                return SUCCESS
        return TIMEOUT

    def _fault(self, name: str, device: int | None) -> dict[str, Any]:
        for fault in self._profile.get("faults", ()):
            wanted = fault.get("device")
            meant = fault["call"] in (name, "*") and wanted in (None, device)
            if meant and self.calls[name, device] > fault.get("after", 0):
                return dict(fault)
        return {}


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


def _nonsense(fault: dict[str, Any], value: Any) -> Any:
    """The value, or what a fault puts in its place."""
    return bytes.fromhex(fault["bytes"]) if "bytes" in fault else fault.get("value", value)


def _index_of(handle: Any) -> int | None:
    """A device handle is a pointer whose address is the index plus one."""
    if not isinstance(handle, ctypes._Pointer):  # noqa: SLF001  (the base of all pointer types has no public name)
        return None
    address = ctypes.cast(handle, ctypes.c_void_p).value
    return None if address is None else address - 1


def _outputs(arguments: tuple[Any, ...]) -> list[Any]:
    """What `byref` points to, and string buffers, in order."""
    objects = [getattr(argument, "_obj", argument) for argument in arguments]
    return [
        thing
        for thing, argument in zip(objects, arguments, strict=True)
        if hasattr(argument, "_obj") or isinstance(thing, ctypes.Array)
    ]


def _fill(arguments: tuple[Any, ...], value: Any) -> int:
    """Write a value into the outputs of a call."""
    if value is None:
        return NOT_SUPPORTED
    outputs = _outputs(arguments)
    if isinstance(value, str | bytes):
        outputs[0].value = value.encode() if isinstance(value, str) else value
    elif isinstance(value, dict):
        for field, part in value.items():
            setattr(outputs[0], field, part.encode() if isinstance(part, str) else part)
    else:
        for output, part in zip(outputs, value if isinstance(value, list) else [value] * len(outputs), strict=True):
            _write(output, part)
    return SUCCESS


def _write(output: Any, number: int) -> None:
    if not isinstance(output, ctypes.Structure):
        output.value = number
        return
    for name, kind, *_ in output._fields_:
        if issubclass(kind, ctypes._SimpleCData):  # noqa: SLF001  (the base of all number types has no public name)
            setattr(output, name, number)


def _index(_profile: dict[str, Any], device: int | None, arguments: tuple[Any, ...]) -> int:
    return _fill(arguments[1:], device)


def _count(profile: dict[str, Any], _device: int | None, arguments: tuple[Any, ...]) -> int:
    return _fill(arguments, len(profile["devices"]))


def _handle(profile: dict[str, Any], _device: int | None, arguments: tuple[Any, ...]) -> int:
    index = int(arguments[0].value)
    if index >= len(profile["devices"]):
        return 2  # NVML_ERROR_INVALID_ARGUMENT
    address = ctypes.c_void_p(index + 1)
    ctypes.memmove(arguments[1], ctypes.byref(address), ctypes.sizeof(address))
    return SUCCESS


def _processes(profile: dict[str, Any], device: int | None, arguments: tuple[Any, ...]) -> int:
    listed = profile["devices"][device or 0].get("ComputeRunningProcesses")
    if listed is None:
        return NOT_SUPPORTED
    count, array = arguments[1]._obj, arguments[2]  # noqa: SLF001  (what byref points to has no public name)
    if array is None:
        count.value = len(listed)
        return INSUFFICIENT_SIZE if listed else SUCCESS
    count.value = len(listed)
    for place, process in enumerate(listed):
        array[place].pid = process["pid"]
        array[place].usedGpuMemory = process.get("usedGpuMemory", 2**64 - 1)
    return SUCCESS


def _fields(profile: dict[str, Any], device: int | None, arguments: tuple[Any, ...]) -> int:
    table: dict[str, int] = profile["devices"][device or 0].get("FieldValues", {})
    for value in arguments[2]._obj:  # noqa: SLF001
        known = table.get(str(value.fieldId))
        value.nvmlReturn = NOT_SUPPORTED if known is None else SUCCESS
        value.valueType = 3  # NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        value.value.ullVal = known or 0
    return SUCCESS


def _done(_profile: dict[str, Any], _device: int | None, _arguments: tuple[Any, ...]) -> int:
    return SUCCESS


def _gpm_support(profile: dict[str, Any], device: int | None, arguments: tuple[Any, ...]) -> int:
    arguments[1]._obj.isSupportedDevice = int("Gpm" in profile["devices"][device or 0])  # noqa: SLF001
    return SUCCESS


def _gpm_metrics(profile: dict[str, Any], _device: int | None, arguments: tuple[Any, ...]) -> int:
    request = arguments[0]._obj  # noqa: SLF001
    table: dict[str, float] = next((device["Gpm"] for device in profile["devices"] if "Gpm" in device), {})
    for place in range(request.numMetrics):
        metric = request.metrics[place]
        known = table.get(str(metric.metricId))
        metric.nvmlReturn = NOT_SUPPORTED if known is None else SUCCESS
        metric.value = known or 0.0
    return SUCCESS


_SPECIAL: dict[str, Callable[[dict[str, Any], int | None, tuple[Any, ...]], int]] = {
    "nvmlInitWithFlags": _done,
    "nvmlShutdown": _done,
    "nvmlDeviceGetCount_v2": _count,
    "nvmlDeviceGetHandleByIndex_v2": _handle,
    "nvmlDeviceGetIndex": _index,
    "nvmlDeviceGetComputeRunningProcesses_v3": _processes,
    "nvmlDeviceGetFieldValues": _fields,
    "nvmlEventSetCreate": _done,
    "nvmlDeviceRegisterEvents": _done,
    "nvmlGpmQueryDeviceSupport": _gpm_support,
    "nvmlGpmSampleAlloc": _done,
    "nvmlGpmSampleGet": _done,
    "nvmlGpmMetricsGet": _gpm_metrics,
}

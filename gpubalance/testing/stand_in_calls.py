"""What each C function of the stand-in NVML does with its arguments: fills the outputs, gives a return code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, INSUFFICIENT_SIZE, TIMEOUT = 0, 2, 3, 7, 10
NOT_AVAILABLE = 2**64 - 1
"""nvml.h, NVML_VALUE_NOT_AVAILABLE."""

_SELECTED = frozenset({
    "ApplicationsClock", "ClockInfo", "MaxClockInfo", "NvLinkRemotePciInfo_v2", "NvLinkState", "NvLinkVersion",
    "P2PStatus", "RetiredPages", "Temperature", "TemperatureThreshold", "TopologyCommonAncestor", "TotalEccErrors",
    "ViolationStatus",
})  # fmt: skip
"""Calls whose arguments between handle and output choose the value."""

_FIELD_TYPES = {
    "double": (0, "dVal"),
    "unsigned_int": (1, "uiVal"),
    "unsigned_long": (2, "ulVal"),
    "unsigned_long_long": (3, "ullVal"),
    "signed_long_long": (4, "sllVal"),
    "signed_int": (5, "siVal"),
    "unsigned_short": (6, "usVal"),
}
"""nvml.h, nvmlValueType_t, and the member of the union that holds it."""


@dataclass(frozen=True)
class Call:
    """One call, the profile that answers it, and the fault that spoils the answer."""

    name: str
    device: int | None
    arguments: tuple[Any, ...]
    profile: dict[str, Any]
    fault: dict[str, Any]

    @property
    def key(self) -> str:
        """How a profile calls the function."""
        return self.name.removeprefix("nvmlSystemGet").removeprefix("nvmlDeviceGet").removeprefix("nvmlDevice")

    @property
    def of_device(self) -> dict[str, Any]:
        """The profile of the device, empty when there is no such device."""
        devices: list[dict[str, Any]] = self.profile["devices"]
        return {} if self.device is None or self.device >= len(devices) else devices[self.device]

    @property
    def known(self) -> Any:
        """What the profile has for this call and what it selects; None when it has nothing."""
        if self.name.startswith("nvmlSystemGet"):
            return self.profile["system"].get(self.key)
        value = self.of_device.get(self.key)
        if self.key in _SELECTED and isinstance(value, dict) and "error" not in value:
            return value.get(self.selector, value.get("*"))
        return value

    @property
    def value(self) -> Any:
        """The same, or what a fault puts in its place."""
        if "bytes" in self.fault:
            return bytes.fromhex(self.fault["bytes"])
        return self.fault.get("value", self.known)

    @property
    def selector(self) -> str:
        """The arguments between handle and outputs, as text: 1,0."""
        return ",".join(_text(argument) for argument in self.arguments[1:] if not _is_output(argument))

    @property
    def outputs(self) -> list[Any]:
        """What `byref` points to, and string buffers, in order."""
        return [_target(argument) for argument in self.arguments if _is_output(argument)]


def answer(call: Call) -> int:
    """Carry out the call."""
    known = call.known
    if isinstance(known, dict) and "error" in known:
        return int(known["error"])
    return _SPECIAL.get(call.name, _plain)(call)


def device_of(handle: Any) -> int | None:
    """A device handle is a pointer whose address is the index plus one; None for everything else."""
    if not isinstance(handle, ctypes._Pointer):  # noqa: SLF001  (the base of all pointer types has no public name)
        return None
    address = ctypes.cast(handle, ctypes.c_void_p).value
    return None if address is None else address - 1


def handle_of(device: int, kind: type[Any]) -> Any:
    """The handle of a device, for structs that hold one."""
    return ctypes.cast(ctypes.c_void_p(device + 1), kind)


def _is_output(argument: Any) -> bool:
    return argument is None or hasattr(argument, "_obj") or isinstance(argument, ctypes.Array)


def _target(argument: Any) -> Any:
    return getattr(argument, "_obj", argument)


def _text(argument: Any) -> str:
    device = device_of(argument)
    return str(getattr(argument, "value", argument) if device is None else device)


def _plain(call: Call) -> int:
    return _fill(call.outputs, call.value)


def _fill(outputs: list[Any], value: Any) -> int:
    """Write a value into the outputs of a call."""
    if value is None:
        return NOT_SUPPORTED
    if isinstance(value, str | bytes):
        outputs[0].value = _bytes(value)
    elif isinstance(value, dict):
        for field, part in value.items():
            setattr(outputs[0], field, _bytes(part))
    else:
        for output, part in zip(outputs, value if isinstance(value, list) else [value] * len(outputs), strict=True):
            _write(output, part)
    return SUCCESS


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _write(output: Any, number: int) -> None:
    if not isinstance(output, ctypes.Structure):
        output.value = number
        return
    for name, kind, *_ in output._fields_:
        if issubclass(kind, ctypes._SimpleCData):  # noqa: SLF001  (the base of all number types has no public name)
            setattr(output, name, number)


def _done(_call: Call) -> int:
    return SUCCESS


def _index(call: Call) -> int:
    return _fill(call.outputs, call.device)


def _count(call: Call) -> int:
    return _fill(call.outputs, call.fault.get("value", len(call.profile["devices"])))


def _handle(call: Call) -> int:
    index = int(call.arguments[0].value)
    if index >= len(call.profile["devices"]):
        return INVALID_ARGUMENT
    address = ctypes.c_void_p(index + 1)
    ctypes.memmove(call.arguments[1], ctypes.byref(address), ctypes.sizeof(address))
    return SUCCESS


def _return_code(call: Call) -> int:
    """A call without outputs: its value is what it returns."""
    return NOT_SUPPORTED if call.known is None else int(call.known)


def _processes(call: Call) -> int:
    listed = call.of_device.get("ComputeRunningProcesses")
    if listed is None:
        return NOT_SUPPORTED
    count, array = (_target(argument) for argument in call.arguments[1:3])
    count.value = len(listed)
    if array is None:
        return INSUFFICIENT_SIZE if listed else SUCCESS
    for place, process in enumerate(listed):
        array[place].pid = call.fault.get("value", process["pid"])
        array[place].usedGpuMemory = call.fault.get("value", process.get("usedGpuMemory", NOT_AVAILABLE))
    return SUCCESS


def _retired_pages(call: Call) -> int:
    pages = call.known
    if pages is None:
        return NOT_SUPPORTED
    count, array = (_target(argument) for argument in call.arguments[2:4])
    count.value = len(pages)
    if array is None:
        return INSUFFICIENT_SIZE if pages else SUCCESS
    array[0 : len(pages)] = pages
    return SUCCESS


def _affinity(call: Call) -> int:
    """The value is a list of words of 64 CPUs; words beyond it are zero."""
    if call.known is None:
        return NOT_SUPPORTED
    mask = call.outputs[0]
    for place in range(len(mask)):
        known = call.known[place] if place < len(call.known) else 0
        mask[place] = call.fault.get("value", known)
    return SUCCESS


def _fields(call: Call) -> int:
    table = call.known or {}
    for value in call.outputs[0]:
        _field(value, call.fault.get("value", table.get(str(value.fieldId))))
    return SUCCESS


def _field(value: Any, known: Any) -> None:
    """A field is a number, a number with its type, or the error code that it alone answers with."""
    entry = known if isinstance(known, dict) else {"value": known}
    value.nvmlReturn = entry.get("error", NOT_SUPPORTED if known is None else SUCCESS)
    value.valueType, member = _FIELD_TYPES[entry.get("type", "unsigned_long_long")]
    setattr(value.value, member, entry.get("value") or 0)


def _gpm_support(call: Call) -> int:
    call.outputs[0].isSupportedDevice = int("Gpm" in call.of_device)
    return SUCCESS


def _gpm_metrics(call: Call) -> int:
    request = call.outputs[0]
    table: dict[str, float] = next((device["Gpm"] for device in call.profile["devices"] if "Gpm" in device), {})
    for place in range(request.numMetrics):
        metric = request.metrics[place]
        known = table.get(str(metric.metricId))
        metric.nvmlReturn = NOT_SUPPORTED if known is None else SUCCESS
        metric.value = known or 0.0
    return SUCCESS


_SPECIAL: dict[str, Callable[[Call], int]] = {
    "nvmlInitWithFlags": _done,
    "nvmlShutdown": _done,
    "nvmlDeviceGetCount_v2": _count,
    "nvmlDeviceGetHandleByIndex_v2": _handle,
    "nvmlDeviceGetIndex": _index,
    "nvmlDeviceGetComputeRunningProcesses_v3": _processes,
    "nvmlDeviceGetCpuAffinity": _affinity,
    "nvmlDeviceGetFieldValues": _fields,
    "nvmlDeviceGetRetiredPages": _retired_pages,
    "nvmlDeviceValidateInforom": _return_code,
    "nvmlEventSetCreate": _done,
    "nvmlDeviceRegisterEvents": _done,
    "nvmlGpmQueryDeviceSupport": _gpm_support,
    "nvmlGpmSampleAlloc": _done,
    "nvmlGpmSampleGet": _done,
    "nvmlGpmMetricsGet": _gpm_metrics,
}

"""The one gate to NVML: every call goes through `Nvml.ask`, which answers with a value or a reason, never an error.

Reasons are NVML's own codes without prefix (NOT_SUPPORTED, GPU_IS_LOST, ...) and three of ours:
UNDECODABLE (the driver returned bytes that are not text; seen with driver 555.85 under WSL), SENTINEL (success with
a number that stands for "no value") and SKIPPED (refused for good before: sick cards dislike being asked again).

An NVML call can hang in the kernel for ever. `note` is called before each call with its name, so that whoever
watches this process can say which call never returned.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

Note = Callable[[str, int | None], None]

_FINAL = frozenset({"NOT_SUPPORTED", "FUNCTION_NOT_FOUND"})
"""Refusals that no later call will lift."""


@dataclass(frozen=True)
class Answer:
    """What one call gave: a value, or None and the reason."""

    value: Any
    reason: str | None = None


class Nvml:
    """An open NVML. Make it with `open_nvml`; close it when done. Not thread safe."""

    def __init__(self, binding: ModuleType, note: Note) -> None:
        self._binding = binding
        self._note = note
        self._handles: dict[int, Any] = {}
        self._refused: dict[tuple[str, tuple[int, ...], tuple[Any, ...]], str] = {}

    def constant(self, name: str) -> Any:
        """Value of a constant of the binding; older bindings lack newer ones, which is None."""
        return getattr(self._binding, name, None)

    def reason(self, code: int) -> str:
        """NVML's name for a return code that came inside an answer, as with field values and GPM metrics."""
        return reason_of(self._binding, code)

    def ask(self, call: str, device: int | None = None, *arguments: Any) -> Answer:
        """Call `nvml<call>` on the device with this NVML index (None: on the system)."""
        return self._once(call, () if device is None else (device,), arguments)

    def ask_pair(self, call: str, device: int, other: int, *arguments: Any) -> Answer:
        """The same for a call on two devices."""
        return self._once(call, (device, other), arguments)

    def _once(self, call: str, devices: tuple[int, ...], arguments: tuple[Any, ...]) -> Answer:
        """Ask unless the same was refused for good."""
        key = (call, devices, tuple(a for a in arguments if isinstance(a, int | str)))
        if key in self._refused:
            return Answer(None, f"SKIPPED after {self._refused[key]}")
        answer = self._ask(call, devices, arguments)
        if answer.reason in _FINAL:
            self._refused[key] = answer.reason or ""
        return answer

    def _ask(self, call: str, devices: tuple[int, ...], arguments: tuple[Any, ...]) -> Answer:
        function = getattr(self._binding, f"nvml{call}", None)
        if function is None:
            return Answer(None, "FUNCTION_NOT_FOUND")
        try:
            handles = [self._handle(device) for device in devices]
            self._note(call, devices[0] if devices else None)
            return Answer(function(*handles, *arguments))
        except self._binding.NVMLError as error:
            return Answer(None, reason_of(self._binding, error.value))
        except (ValueError, IndexError, OverflowError):  # UnicodeDecodeError is one; lengths can be nonsense
            return Answer(None, "UNDECODABLE")
        finally:
            self._note("", None)

    def _handle(self, device: int) -> Any:
        if device not in self._handles:
            self._note("DeviceGetHandleByIndex", device)
            self._handles[device] = self._binding.nvmlDeviceGetHandleByIndex(device)
        return self._handles[device]

    def close(self) -> None:
        """Shut NVML down; a driver that refuses even that changes nothing any more."""
        self.ask("Shutdown")


def open_nvml(note: Note = lambda _call, _device: None) -> Nvml | str:
    """Open NVML, or say in a few words why it cannot be used."""
    binding = importlib.import_module("pynvml")
    if not hasattr(binding, "nvmlDeviceGetCurrentClocksEventReasons"):
        return f"SHADOWED: the old package pynvml stands before nvidia-ml-py ({binding.__file__})"
    nvml = Nvml(binding, note)
    answer = nvml.ask("Init")
    return nvml if answer.reason is None else answer.reason


def reason_of(binding: ModuleType, code: int) -> str:
    """NVML's name for a return code, without its prefix: NVML_ERROR_GPU_IS_LOST is GPU_IS_LOST."""
    for name, value in vars(binding).items():
        if name.startswith("NVML_ERROR_") and value == code:
            return name.removeprefix("NVML_ERROR_")
    return f"ERROR_{code}"


EXPLANATIONS = {
    "LIBRARY_NOT_FOUND": "the driver's library libnvidia-ml.so.1 is not here",
    "DRIVER_NOT_LOADED": "the NVIDIA kernel driver is not loaded",
    "LIB_RM_VERSION_MISMATCH": "driver library and kernel module differ in version; reboot or reload the module",
    "NO_PERMISSION": "no permission; in a container the device files may be missing",
    "UNKNOWN": "unknown error; in a container the device rules were probably lost when systemd reloaded: "
    "recreate the container",
    "GPU_IS_LOST": "the GPU is lost: it fell off the bus and needs a reset or a reboot",
}
"""What the reasons that end everything mean, in words."""


def explain(reason: str) -> str:
    """A reason in words where there are any, else the reason itself."""
    return EXPLANATIONS.get(reason, reason)

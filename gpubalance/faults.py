"""Faults that can be played on a rank, and how `--inject` spells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpubalance.errors import UsageError
from gpubalance.wanted import LARGEST, one_of


@dataclass(frozen=True)
class Fault:
    """A fault to be played on one rank, as `--inject` spells it: `compute:rank=1,percent=20`."""

    kind: str
    rank: int
    percent: float | None = None
    ms: float | None = None
    factor: float | None = None
    every: int | None = None
    mib: float | None = None
    device: int | None = None
    """Index into the plan's devices."""
    processes: int | None = None

    def spelled(self) -> str:
        """The text that `parse_fault` would read back."""
        values = [
            f"{name}={str(value).removesuffix('.0')}"
            for name in ("rank", "percent", "ms", "factor", "every", "mib", "device", "processes")
            if (value := getattr(self, name)) is not None
        ]
        return f"{self.kind}:{','.join(values)}"


FAULTS: Mapping[str, tuple[str, ...]] = {
    "compute": ("percent",),
    "sleep": ("ms",),
    "memory": ("percent",),
    "data": ("factor",),
    "transient": ("percent", "every"),
    "loader": ("ms",),
    "copies": ("mib",),
    "backward": ("percent",),
    "context": ("device",),
    "hog": ("processes",),
    "rival": (),
}
"""Kinds of fault and the values each needs beside `rank`."""

GPU_FAULTS = ("memory", "context", "rival")
"""Kinds that act on a GPU only."""

MOST_HOGS = 64
"""Busy processes that anybody would start on purpose on one core."""

_WHOLE = ("rank", "every", "device", "processes")
_FROM_ZERO = ("rank", "device")


def each_fault_once(faults: Sequence[Fault]) -> None:
    """Different kinds add up on a rank; one kind twice would leave open which of the two counts."""
    first: dict[tuple[str, int], Fault] = {}
    for fault in faults:
        other = first.get((fault.kind, fault.rank))
        if other is not None:
            raise UsageError(
                f"--inject {other.spelled()} and {fault.spelled()}: one kind of fault is played once on a rank",
                "give one of them, or two kinds",
            )
        first[fault.kind, fault.rank] = fault


def parse_fault(text: str) -> Fault:
    """Read `kind:name=value,...`. Raises UsageError that names what is wrong and shows a right example."""
    kind, _, rest = text.partition(":")
    one_of("fault", kind, tuple(FAULTS))
    pairs = [part.split("=", 1) for part in rest.split(",") if part]
    values: dict[str, float] = {}
    for pair in pairs:
        if len(pair) != 2 or pair[0] in values:
            raise UsageError(f"fault {text!r}: {'='.join(pair)!r} is not one name=value", _fault_example(kind))
        values[pair[0]] = _number(text, kind, pair[1])
    needed = {"rank", *FAULTS[kind]}
    if set(values) != needed:
        raise UsageError(f"fault {text!r} needs exactly: {', '.join(sorted(needed))}", _fault_example(kind))
    return _checked_fault(text, kind, values)


def _checked_fault(text: str, kind: str, values: dict[str, float]) -> Fault:
    whole = {name: values[name] for name in _WHOLE if name in values}
    if any(value != int(value) or value < 0 for value in whole.values()):
        raise UsageError(f"fault {text!r}: {' and '.join(whole)} must be whole numbers", _fault_example(kind))
    if any(values[name] <= 0 for name in values if name not in _FROM_ZERO):
        raise UsageError(f"fault {text!r}: every value but rank and device must be above 0", _fault_example(kind))
    if kind == "memory" and values["percent"] > 95:
        raise UsageError(f"fault {text!r}: more than 95 % of a device cannot be taken", _fault_example(kind))
    if kind == "hog" and values["processes"] > MOST_HOGS:
        raise UsageError(f"fault {text!r}: more than {MOST_HOGS} processes are not started", _fault_example(kind))
    read: dict[str, Any] = {**values, **{name: int(value) for name, value in whole.items()}}
    return Fault(kind=kind, **read)


def _number(text: str, kind: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise UsageError(f"fault {text!r}: {value!r} is not a number", _fault_example(kind)) from None
    if not abs(number) <= LARGEST:  # NaN is not either
        raise UsageError(f"fault {text!r}: {value!r} is out of range", _fault_example(kind))
    return number


def _fault_example(kind: str) -> str:
    examples = {
        "compute": "compute:rank=1,percent=20",
        "sleep": "sleep:rank=1,ms=5",
        "memory": "memory:rank=0,percent=35",
        "data": "data:rank=1,factor=1.5",
        "transient": "transient:rank=1,percent=100,every=10",
        "loader": "loader:rank=1,ms=5",
        "copies": "copies:rank=1,mib=256",
        "backward": "backward:rank=1,percent=20",
        "context": "context:rank=1,device=0",
        "hog": "hog:rank=1,processes=2",
        "rival": "rival:rank=1",
    }
    return f"for example: --inject {examples[kind]}"

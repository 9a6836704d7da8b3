"""What the user asked for, and where each value came from.

The settings of a command are one frozen record, checked when it is made: whoever holds one may rely on it.
Values that can only be judged against the machine (a rank that does not exist, a batch that does not divide)
are judged in `gpubalance.launch.plan`, before anything starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpubalance.errors import UsageError
from gpubalance.thresholds import parse_thresholds

WORKLOADS = ("solo", "ddp", "data_parallel", "collectives", "links")
"""Workloads of `bench`."""

EXPERIMENTS = ("p2p",)
"""What `--what-if` can measure both ways."""

MODELS = ("mlp", "transformer")

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv")
SYNONYMS = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
"""How nccl-tests spells two of them."""

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Margin:
    """How much slower than its peers a rank may be: shares, 0.05 is 5 %."""

    warn: float
    fail: float

    def __post_init__(self) -> None:
        """Raise UsageError unless 0 < warn < fail, and both are finite."""
        if not 0 < self.warn < self.fail < math.inf:
            given = f"{100 * self.warn:g} %:{100 * self.fail:g} %"
            raise UsageError(
                f"margin {given}: the first must be above 0 and below the second", "for example: --margin 5:10"
            )


GPU_MARGIN = Margin(0.05, 0.10)
CPU_MARGIN = Margin(0.25, 0.50)
"""The CPU's margins are wide because gloo ranks share cores with everything else on the machine: two ranks on
two cores show block ratios of 3 to 10 % when nothing is wrong."""


@dataclass(frozen=True)
class BenchSettings:
    """What `gpubalance bench` was asked to do. None means: decide from what is here."""

    nproc: int | None = None
    devices: tuple[str, ...] | None = None
    """Ordinals among the visible devices, or unique beginnings of UUIDs."""
    device: str = "auto"
    """auto, cuda or cpu."""
    expect_gpus: int | None = None
    workloads: tuple[str, ...] | None = None
    model: str = "mlp"
    batch: int | None = None
    """Global batch: the sum over ranks, in samples."""
    budget_s: float | None = None
    """Seconds for the fenced and overlapped steps of the ddp phase; None is as short as the statistics allow."""
    margin: Margin | None = None
    thresholds: tuple[str, ...] = ()
    """Other gates than the margin, as NAME=VALUE; see `gpubalance.thresholds`."""
    inject: tuple[Fault, ...] = ()
    sizes: tuple[int, ...] | None = None
    """Bytes of the messages that collectives move, before rounding."""
    collectives: tuple[str, ...] | None = None
    dtype: str = "float32"
    nccl_tests_compat: bool = False
    jitter: bool = False
    out: str | None = None
    launcher: str = "auto"
    """auto, env (adopt RANK and its kin whoever set them) or none."""
    force: bool = False
    stall_s: float = 60.0
    """Seconds without any progress of a rank before the run is ended."""
    bisect: str = "auto"
    """auto or never: whether fresh processes search for the cause when ranks hang or fail in a collective."""
    what_if: tuple[str, ...] = ()
    """Experiments, of `EXPERIMENTS`: what one variable costs on this node."""
    sample_interval_s: float = 0.1
    seed: int = 2026
    fail_on: str = "fail"
    """fail, warn or never: from which verdict on the exit code is 1."""
    min_score: float | None = None
    """Fail when the balance score is below this; there is no such gate by default."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each value came from: default, flag, or the name of a variable."""

    def __post_init__(self) -> None:
        """Raise UsageError for a value that is wrong on any machine."""
        _positive("nproc", self.nproc)
        _positive("batch", self.batch)
        _positive("budget", self.budget_s)
        _positive("stall timeout", self.stall_s)
        _positive("expect-gpus", self.expect_gpus)
        if self.min_score is not None and not 0 <= self.min_score <= 100:
            raise UsageError(f"min-score must lie between 0 and 100, not {self.min_score:g}")
        _one_of("device", self.device, ("auto", "cuda", "cpu"))
        _one_of("model", self.model, MODELS)
        _one_of("launcher", self.launcher, ("auto", "env", "none"))
        _one_of("fail-on", self.fail_on, ("fail", "warn", "never"))
        _one_of("bisect", self.bisect, ("auto", "never"))
        for experiment in self.what_if:
            _one_of("what-if", experiment, EXPERIMENTS)
        parse_thresholds(self.thresholds, "bench")
        _each_fault_once(self.inject)
        for workload in self.workloads or ():
            _one_of("workload", workload, WORKLOADS)
        self._check_collectives()
        if not self.sample_interval_s >= MIN_SAMPLE_INTERVAL_S:  # NaN is not either
            raise UsageError(
                f"sample interval {self.sample_interval_s:g} s is below {MIN_SAMPLE_INTERVAL_S:g} s",
                "faster queries disturb some cards and the driver refreshes utilization only every 0.1 to 1 s",
            )

    def _check_collectives(self) -> None:
        for name in self.collectives or ():
            _one_of("collective", name, COLLECTIVES)
        _one_of("dtype", self.dtype, DTYPES)
        asked = {
            "--sizes": self.sizes, "--collectives": self.collectives, "--dtype": self.dtype != "float32",
            "--nccl-tests-compat": self.nccl_tests_compat, "--jitter": self.jitter,
        }  # fmt: skip
        flag = next((flag for flag, value in asked.items() if value), None)
        if flag is not None and self.workloads is not None and "collectives" not in self.workloads:
            raise UsageError(f"{flag} is about collectives, which --workload leaves out", "add collectives to it")


@dataclass(frozen=True)
class ProbeSettings:
    """What `gpubalance probe` was asked to do."""

    load: bool = False
    force: bool = False
    expect_gpus: int | None = None
    expect_nvlinks: int | None = None
    require: tuple[str, ...] = ()
    """Checks whose unknown is a failure, by id or family letter."""
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    simulate: str | None = None
    """Name of a stand-in profile, or the path of one."""
    out: str | None = None
    fail_on: str = "fail"
    thresholds: tuple[str, ...] = ()
    """Gates of checks, as NAME=VALUE; see `gpubalance.thresholds`."""
    origins: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise UsageError for a value that is wrong on any machine."""
        _positive("expect-gpus", self.expect_gpus)
        _positive("expect-nvlinks", self.expect_nvlinks)
        _one_of("fail-on", self.fail_on, ("fail", "warn", "never"))
        parse_thresholds(self.thresholds, "probe")
        if self.simulate is not None and self.load:
            raise UsageError("--simulate plays a driver, and no GPU is behind it: --load has nothing to load")


@dataclass(frozen=True)
class SelftestSettings:
    """What `gpubalance selftest` was asked to do."""

    quick: bool = False
    nproc: int | None = None
    devices: tuple[str, ...] | None = None
    device: str = "auto"
    margin: Margin | None = None
    thresholds: tuple[str, ...] = ()
    """Gates of checks, as NAME=VALUE; see `gpubalance.thresholds`."""
    rows: tuple[str, ...] | None = None
    """Kinds of row or single rows; None is all that can be played."""
    repeat: int = 1
    """How often the whole matrix is played."""
    healthy: int = 0
    """Healthy passes beside those that stand next to faults."""
    seed: int | None = None
    """None: drawn anew, and recorded."""
    out: str | None = None
    force: bool = False
    stall_s: float = 60.0
    origins: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise UsageError for a value that is wrong on any machine; rows are checked where they are known."""
        _positive("nproc", self.nproc)
        _positive("stall timeout", self.stall_s)
        _one_of("device", self.device, ("auto", "cuda", "cpu"))
        parse_thresholds(self.thresholds, "selftest")
        for name, value, least in (("repeat", self.repeat, 1), ("healthy", self.healthy, 0)):
            if not least <= value <= MOST_PASSES:
                raise UsageError(f"{name} must lie between {least} and {MOST_PASSES}, not {value}")
        if self.seed is not None and not 0 <= self.seed < 2**31:
            raise UsageError(f"seed must lie between 0 and {2**31 - 1}, not {self.seed}")


MOST_PASSES = 1000
MIN_SAMPLE_INTERVAL_S = 0.05
LARGEST = 1e9
"""No count, batch or number of seconds that anybody means is larger."""


def _positive(name: str, value: float | None) -> None:
    if value is not None and not 0 < value <= LARGEST:
        raise UsageError(f"{name} must be above 0 and finite, not {value:g}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} {value!r} is not known", f"choose from: {', '.join(allowed)}")


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


def _each_fault_once(faults: Sequence[Fault]) -> None:
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
    _one_of("fault", kind, tuple(FAULTS))
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
    if not abs(number) <= 1e9:  # NaN is not either
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


_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>s|m|h|)")


def parse_duration(text: str) -> float:
    """Read `90`, `90s`, `5m` or `1.5h` as seconds. Raises UsageError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a duration", "for example: 90s, 5m, 1h")
    return float(match["number"]) * {"s": 1, "": 1, "m": 60, "h": 3600}[match["unit"]]


def parse_margin(text: str) -> Margin:
    """Read `5:10` (percent to warn, percent to fail) as a Margin. Raises UsageError."""
    parts = text.split(":")
    try:
        warn, fail = (float(part) / 100 for part in parts)
    except ValueError:
        raise UsageError(f"margin {text!r} is not WARN:FAIL in percent", "for example: --margin 5:10") from None
    return Margin(warn, fail)


def parse_collectives(text: str) -> tuple[str, ...]:
    """Read a list of collectives, each once, nccl-tests' own spellings too. Raises UsageError."""
    names = (SYNONYMS.get(name, name) for name in parse_list(text.lower()))
    return tuple(dict.fromkeys(names))


def parse_list(text: str) -> tuple[str, ...]:
    """Read a comma-separated list, spaces around entries dropped. Raises UsageError when an entry is empty."""
    entries = tuple(part.strip() for part in text.split(","))
    if not all(entries):
        raise UsageError(f"list {text!r} has an empty entry")
    return entries

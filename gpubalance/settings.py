"""What the user asked for, and where each value came from.

The settings of a command are one frozen record, checked when it is made: whoever holds one may rely on it.
Values that can only be judged against the machine (a rank that does not exist, a batch that does not divide)
are judged in `gpubalance.launch.plan`, before anything starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpubalance.errors import UsageError
from gpubalance.faults import Fault, each_fault_once
from gpubalance.thresholds import parse_thresholds
from gpubalance.wanted import one_of, positive

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
        positive("nproc", self.nproc)
        positive("batch", self.batch)
        positive("budget", self.budget_s)
        positive("stall timeout", self.stall_s)
        positive("expect-gpus", self.expect_gpus)
        if self.min_score is not None and not 0 <= self.min_score <= 100:
            raise UsageError(f"min-score must lie between 0 and 100, not {self.min_score:g}")
        one_of("device", self.device, ("auto", "cuda", "cpu"))
        one_of("model", self.model, MODELS)
        one_of("launcher", self.launcher, ("auto", "env", "none"))
        one_of("fail-on", self.fail_on, ("fail", "warn", "never"))
        one_of("bisect", self.bisect, ("auto", "never"))
        for experiment in self.what_if:
            one_of("what-if", experiment, EXPERIMENTS)
        parse_thresholds(self.thresholds, "bench")
        each_fault_once(self.inject)
        for workload in self.workloads or ():
            one_of("workload", workload, WORKLOADS)
        self._check_collectives()
        if not self.sample_interval_s >= MIN_SAMPLE_INTERVAL_S:  # NaN is not either
            raise UsageError(
                f"sample interval {self.sample_interval_s:g} s is below {MIN_SAMPLE_INTERVAL_S:g} s",
                "faster queries disturb some cards and the driver refreshes utilization only every 0.1 to 1 s",
            )

    def _check_collectives(self) -> None:
        for name in self.collectives or ():
            one_of("collective", name, COLLECTIVES)
        one_of("dtype", self.dtype, DTYPES)
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
        positive("expect-gpus", self.expect_gpus)
        positive("expect-nvlinks", self.expect_nvlinks)
        one_of("fail-on", self.fail_on, ("fail", "warn", "never"))
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
        positive("nproc", self.nproc)
        positive("stall timeout", self.stall_s)
        one_of("device", self.device, ("auto", "cuda", "cpu"))
        parse_thresholds(self.thresholds, "selftest")
        for name, value, least in (("repeat", self.repeat, 1), ("healthy", self.healthy, 0)):
            if not least <= value <= MOST_PASSES:
                raise UsageError(f"{name} must lie between {least} and {MOST_PASSES}, not {value}")
        if self.seed is not None and not 0 <= self.seed < 2**31:
            raise UsageError(f"seed must lie between 0 and {2**31 - 1}, not {self.seed}")


MOST_PASSES = 1000
MIN_SAMPLE_INTERVAL_S = 0.05
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

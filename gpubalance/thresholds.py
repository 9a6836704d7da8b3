"""The numbers above or below which checks warn and fail, by name, as `--threshold NAME=VALUE` sets them.

People write and read them in the unit of the table (percent, MiB); rules get shares and bytes. Two names that differ
in `_warn` and `_fail` only are the two gates of one value.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpubalance.errors import UsageError

EXAMPLE = "for example: --threshold limit_warn=70"

LARGEST = 1e9
"""No share, count, temperature or size in these units is larger."""


@dataclass(frozen=True)
class Threshold:
    """One gate."""

    name: str
    default: float
    unit: str
    check: str
    """Ids of the checks that hold a value against it."""
    commands: tuple[str, ...]
    cpu_default: float | None = None
    """In place of `default` where ranks run on the CPU."""
    above: bool = True
    """Larger values are worse; False: smaller ones are."""
    zero: bool = False
    """It may be 0 as well."""

    def default_on(self, *, on_cpu: bool) -> float:
        """The default for this kind of device."""
        return self.cpu_default if on_cpu and self.cpu_default is not None else self.default

    def scaled(self, value: float) -> float:
        """A value in this unit as rules want it: a share, bytes, or the number itself."""
        factors = {"MiB": 2**20, "GiB": 2**30}
        return value / 100 if self.unit == "%" else value * factors.get(self.unit, 1)


_BENCH, _PROBE, _BOTH = ("bench",), ("probe",), ("bench", "probe")
_PASSES = ("bench", "selftest")
"""What is judged in a pass of training, which is all that a selftest measures."""
_SPEED, _SLOWDOWN = "device_speed, Q3", "slowdown, T2"

THRESHOLDS: tuple[Threshold, ...] = (
    Threshold("transient_warn", 3, "%", "transient", _PASSES, cpu_default=25),
    Threshold("transient_fail", 10, "%", "transient", _PASSES, cpu_default=50),
    Threshold("memory_skew_warn", 20, "%", "memory_skew", _PASSES),
    Threshold("memory_skew_fail", 30, "%", "memory_skew", _PASSES),
    Threshold("memory_full_warn", 30, "%", "memory_skew", _PASSES),
    Threshold("memory_full_fail", 50, "%", "memory_skew", _PASSES),
    Threshold("level_warn", 30, "%", "level", _BENCH, above=False),
    Threshold("gemm_peer_warn", 5, "%", _SPEED, _BOTH),
    Threshold("gemm_peer_fail", 10, "%", _SPEED, _BOTH),
    Threshold("memory_copy_peer_warn", 5, "%", _SPEED, _BOTH),
    Threshold("memory_copy_peer_fail", 10, "%", _SPEED, _BOTH),
    Threshold("host_copy_peer_warn", 10, "%", f"{_SPEED}, host_link", _BOTH),
    Threshold("host_copy_peer_fail", 20, "%", f"{_SPEED}, host_link", _BOTH),
    Threshold("limit_warn", 65, "%", _SPEED, _BOTH, above=False),
    Threshold("limit_fail", 50, "%", _SPEED, _BOTH, above=False),
    Threshold("link_warn", 3, "%", "link", _BENCH),
    Threshold("link_fail", 10, "%", "link", _BENCH),
    Threshold("link_limit_warn", 70, "%", "link_limit", _BENCH, above=False),
    Threshold("link_limit_fail", 50, "%", "link_limit", _BENCH, above=False),
    Threshold("host_link_warn", 70, "%", "host_link", _BENCH, above=False),
    Threshold("host_link_fail", 50, "%", "host_link", _BENCH, above=False),
    Threshold("busbw_warn", 92, "%", "busbw", _BENCH, above=False),
    Threshold("busbw_fail", 88, "%", "busbw", _BENCH, above=False),
    Threshold("busbw_direct_warn", 78, "%", "busbw", _BENCH, above=False),
    Threshold("busbw_direct_fail", 70, "%", "busbw", _BENCH, above=False),
    Threshold("busbw_pair_split_warn", 60, "%", "busbw", _BENCH, above=False),
    Threshold("busbw_pair_split_fail", 50, "%", "busbw", _BENCH, above=False),
    Threshold("busbw_nvls_warn", 85, "%", "busbw", _BENCH, above=False),
    Threshold("busbw_pcie_warn", 35, "%", "busbw", _BENCH, above=False),
    Threshold("busbw_pcie_fail", 15, "%", "busbw", _BENCH, above=False),
    Threshold("jitter_warn", 5, "%", "jitter", _BENCH),
    Threshold("leaked_context_warn", 64, "MiB", "leaked_context", _PASSES),
    Threshold("hardware_slowdown_warn", 0, "%", _SLOWDOWN, _BOTH, zero=True),
    Threshold("hardware_slowdown_fail", 1, "%", _SLOWDOWN, _BOTH),
    Threshold("thermal_slowdown_warn", 1, "%", _SLOWDOWN, _BOTH, zero=True),
    Threshold("thermal_slowdown_fail", 10, "%", _SLOWDOWN, _BOTH),
    Threshold("low_clock_warn", 65, "%", "low_clock", _BENCH, above=False),
    Threshold("sram_uncorrected_fail", 4, "errors", "M3", _PROBE, zero=True),
    Threshold("sram_corrected_warn", 10_000, "errors", "M4", _PROBE),
    Threshold("corrected_warn", 20_000_000, "errors", "M4", _PROBE),
    Threshold("remapped_rows_fail", 512, "rows", "M6", _PROBE),
    Threshold("retired_pages_fail", 63, "pages", "M7", _PROBE),
    Threshold("double_bit_pages_warn", 15, "pages", "M7", _PROBE),
    Threshold("pcie_replays_fail", 80, "replays", "P3", _PROBE),
    Threshold("nvlink_crc_warn", 0, "errors/s", "N3", _PROBE, zero=True),
    Threshold("nvlink_crc_fail", 100, "errors/s", "N3", _PROBE),
    Threshold("temperature_margin_warn", 10, "C", "T1", _PROBE, above=False),
    Threshold("temperature_margin_fail", 0, "C", "T1", _PROBE, above=False, zero=True),
    Threshold("temperature_peer_warn", 10, "C", "T1", _PROBE),
    Threshold("capped_power_warn", 60, "%", "T2", _PROBE, above=False),
    Threshold("power_limit_warn", 5, "%", "T3", _PROBE),
    Threshold("clock_warn", 30, "MHz", "T4", _PROBE),
    Threshold("clock_fail", 75, "MHz", "T4", _PROBE),
    Threshold("hidden_memory_warn", 256, "MiB", "U1", _PROBE),
    Threshold("busy_warn", 5, "%", "U2", _PROBE),
    Threshold("throttled_warn", 5, "%", "A3", _PROBE),
    Threshold("shm_warn", 1024, "MiB", "C1", _PROBE, above=False),
    Threshold("open_files_warn", 4096, "files", "C2", _PROBE, above=False),
    Threshold("corrected_rate_warn", 10, "errors/s", "Q4", _PROBE),
)

BY_NAME: Mapping[str, Threshold] = {threshold.name: threshold for threshold in THRESHOLDS}


@dataclass(frozen=True)
class Gates:
    """The thresholds in force: what was asked for, else the defaults of this kind of device."""

    asked: Mapping[str, float] = field(default_factory=dict)
    """In the table's units, checked."""
    on_cpu: bool = False

    def __getitem__(self, name: str) -> float:
        """A threshold by its name in the table, as a share, in bytes, or as the number itself."""
        threshold = BY_NAME[name]
        return threshold.scaled(self.asked.get(name, threshold.default_on(on_cpu=self.on_cpu)))

    def pair(self, name: str) -> tuple[float, float]:
        """NAME_warn and NAME_fail."""
        return self[f"{name}_warn"], self[f"{name}_fail"]


def names_for(command: str) -> tuple[str, ...]:
    """Names that a command knows, in the order of the table."""
    return tuple(threshold.name for threshold in THRESHOLDS if command in threshold.commands)


def parse_thresholds(texts: Iterable[str], command: str | None = None, *, alone: bool = True) -> dict[str, float]:
    """Read `NAME=VALUE`, each name once. Raises UsageError.

    `command` refuses the names of the other one. Unless they are to be joined with others (`alone` is False), warnings
    must come before failures.
    """
    known = tuple(BY_NAME) if command is None else names_for(command)
    asked: dict[str, float] = {}
    for text in texts:
        name, value = _parsed(text, known)
        if name in asked:
            raise UsageError(f"threshold {name} is given twice", "keep one of them")
        _check_range(BY_NAME[name], value)
        asked[name] = value
    if alone:
        _check_order(asked)
    return asked


def spelled(asked: Mapping[str, float]) -> tuple[str, ...]:
    """The texts that `parse_thresholds` would read back."""
    return tuple(f"{name}={str(value).removesuffix('.0')}" for name, value in asked.items())


def plain(value: float) -> str:
    """A threshold in a sentence: 10, 0.5, 20000000."""
    return f"{value:.12g}"


def _meant(name: str, known: Collection[str]) -> str:
    """What a name that nobody knows was probably meant to be, or all names."""
    if name in ("margin", "margin_warn", "margin_fail"):
        return "the margin of bench is set by --margin 5:10"
    if name in BY_NAME:
        return f"it belongs to {' and '.join(BY_NAME[name].commands)}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"choose from: {', '.join(known)}"


def _parsed(text: str, known: Collection[str]) -> tuple[str, float]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise UsageError(f"threshold {text!r:.60} is not NAME=VALUE", EXAMPLE)
    name = name.replace("-", "_")
    if name not in known:
        raise UsageError(f"threshold {name!r:.60} is not known here", _meant(name, known))
    try:
        return name, float(value)
    except ValueError:
        raise UsageError(f"threshold {name}: {value!r:.60} is not a number", EXAMPLE) from None


def _check_range(threshold: Threshold, value: float) -> None:
    most = 100 if threshold.unit == "%" else LARGEST
    if not (0 < value <= most or (threshold.zero and value == 0)):  # NaN is not either
        least = "0 or more" if threshold.zero else "above 0"
        text = f"threshold {threshold.name} must be {least} and at most {plain(most)} {threshold.unit}, not {value:g}"
        raise UsageError(text, f"its default is {plain(threshold.default)}")


def _check_order(asked: Mapping[str, float]) -> None:
    problem = next((text for name in asked for text in _turned(name, asked)), None)
    if problem is not None:
        raise UsageError(f"thresholds: {problem}", "set both, NAME_warn and NAME_fail")


def _turned(name: str, asked: Mapping[str, float]) -> Iterator[str]:
    """Warnings that would not come before failures: on a GPU or on the CPU, as nobody knows yet where it will run."""
    base, _, end = name.rpartition("_")
    warn, fail = BY_NAME.get(f"{base}_warn"), BY_NAME.get(f"{base}_fail")
    if end not in ("warn", "fail") or warn is None or fail is None:
        return
    for on_cpu in (False, True):
        at = [asked.get(each.name, each.default_on(on_cpu=on_cpu)) for each in (warn, fail)]
        first, last = at if warn.above else at[::-1]
        if not first < last:
            where = "" if warn.cpu_default is None else " on the CPU" if on_cpu else " on GPUs"
            way = "below" if warn.above else "above"
            yield f"{warn.name} ({plain(at[0])}) must be {way} {fail.name} ({plain(at[1])}){where}"

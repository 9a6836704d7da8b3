"""Rules on a comparison: what the user allows by `--fail-on METRIC:LIMIT`, and what is worth a warning without one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpubalance.analysis.compare import MORE_IS_BETTER, Change, Comparison
from gpubalance.checks.finding import Finding, State, counted, percent
from gpubalance.errors import UsageError
from gpubalance.message_sizes import size_text
from gpubalance.record.baselines import Collective, Setup

METRICS = ("score", "step", "compute", "busbw", "gemm", "memory_copy", "h2d", "d2h", "memory", "p2p")
"""What `--fail-on` knows; p2p only beside a log of nvbandwidth. The bandwidth of the algorithm is not among them:
between equal numbers of ranks it changes exactly as that of the bus. Exposed communication is part of the step."""

TITLES = {
    "score": "balance score",
    "step": "step time",
    "compute": "compute time",
    "exposed": "exposed communication",
    "busbw": "bus bandwidth",
    "gemm": "matrix product",
    "memory_copy": "memory copy",
    "h2d": "host to device copy",
    "d2h": "device to host copy",
    "p2p": "peer copy",
    "memory": "peak memory",
}

UNITS = {
    "score": "points",
    "step": "ms",
    "compute": "ms",
    "exposed": "ms",
    "busbw": "GB/s",
    "gemm": "TFLOP/s",
    "memory_copy": "GB/s",
    "h2d": "GB/s",
    "d2h": "GB/s",
    "p2p": "GB/s",
    "memory": "GB",
}

WIDER = {"h2d": 0.05, "d2h": 0.05}
"""Copies to and from the host differ by up to 10 % between two healthy runs on one node."""

ONE_VALUE = "one value on each side: noise between runs is not known; save several runs as a baseline to know it"


@dataclass(frozen=True)
class Rule:
    """How much worse a metric may become."""

    metric: str
    limit: float
    """A share when `relative`, else in the metric's unit."""
    relative: bool

    def spelled(self) -> str:
        """The text that `parse_rule` would read back."""
        return f"{self.metric}:{100 * self.limit:g}%" if self.relative else f"{self.metric}:{self.limit:g}"

    def amount(self, change: Change) -> float | None:
        """By how much it is worse, in the rule's terms; None when there is no share of a base that is 0."""
        amount = change.relative(change.worse) if self.relative else change.worse
        return amount if amount is None or self.relative else amount / scale_of(self.metric)

    def told(self, amount: float) -> str:
        """An amount with its unit."""
        return percent(amount) if self.relative else f"{amount:.3g} {UNITS[self.metric]}"


_RULE = re.compile(r"(?P<metric>[a-z0-9_]+):(?P<limit>\d+(\.\d+)?)(?P<percent>%?)")


def parse_rule(text: str) -> Rule:
    """Read `busbw:5%` or `score:2`. Raises UsageError that shows a right example."""
    match = _RULE.fullmatch(text.replace(" ", ""))
    if match is None:
        raise UsageError(f"{text!r} is not METRIC:LIMIT", "for example: --fail-on busbw:5% --fail-on score:2")
    if match["metric"] not in METRICS:
        raise UsageError(f"metric {match['metric']!r} is not known", f"choose from: {', '.join(METRICS)}")
    limit = float(match["limit"])
    if not math.isfinite(limit):
        raise UsageError(f"{text!r}: the limit is not finite", "for example: --fail-on busbw:5%")
    return Rule(match["metric"], limit / 100 if match["percent"] else limit, bool(match["percent"]))


def scale_of(metric: str) -> float:
    """How many units of the record one shown unit has: memory is kept in bytes and shown in GB."""
    return 1e9 if metric == "memory" else 1.0


def place_of(setup: Setup, device: int | None, collective: Collective | None) -> str:
    """GPU 3 by its NVML index, rank 1 on the CPU, all_reduce 1 GiB, or nothing for what is about the whole run."""
    if device is not None:
        index = setup.devices[device].nvml_index
        return f"rank {device}" if index is None else f"GPU {index}"
    return collective_name(collective) if collective is not None else ""


def collective_name(collective: Collective) -> str:
    """all_reduce 1 GiB, with what is unusual about it."""
    usual = ("eager", "float32", "in_place")
    words = (collective.mode, collective.dtype, collective.placement)
    extra = "".join(f" {word.replace('_', ' ')}" for word in words if word not in usual)
    return f"{collective.name} {size_text(collective.size_bytes)}{extra}"


def check_rules(comparison: Comparison, setup: Setup, rules: Sequence[Rule]) -> list[Finding]:
    """fail_on: each rule of the user's on the worst rank, device or collective. A rule fails above its limit, by the
    user's own number; beyond it and still within noise there is no verdict, as there is none when a value is missing.
    """
    return [_rule(comparison, setup, rule) for rule in rules]


def _rule(comparison: Comparison, setup: Setup, rule: Rule) -> Finding:
    changes = [change for change in comparison.changes if change.metric == rule.metric and change.gated]
    amounts = [(amount, change) for change in changes if (amount := rule.amount(change)) is not None]
    over = sorted((pair for pair in amounts if pair[0] > rule.limit), key=lambda pair: -pair[0])
    certain = [pair for pair in over if pair[1].real is not False]
    missing = [gone for gone in comparison.unmatched if gone.metric == rule.metric and gone.gated]
    if certain:
        return _broken(setup, rule, certain)
    if over:
        return _unclear(setup, rule, over[0])
    if missing or not amounts or len(amounts) < len(changes):
        return _missing(setup, rule, [place_of(setup, gone.device, gone.collective) for gone in missing])
    worst = max(amounts, key=lambda pair: pair[0])
    text = f"{TITLES[rule.metric]} is not worse by more than {rule.told(rule.limit)}"
    return Finding("fail_on", State.PASS, text, observed=both(worst[1]), expected=rule.spelled(), required=True)


def _broken(setup: Setup, rule: Rule, over: Sequence[tuple[float, Change]]) -> Finding:
    amount, change = over[0]
    others = [f"{_named(setup, other)} by {rule.told(by)}" for by, other in over[1:]]
    evidence = [interval_text(change), f"worse as well: {', '.join(others)}" if others else ""]
    return Finding(
        "fail_on",
        State.FAIL,
        f"{_named(setup, change)} {rule.told(amount)} worse (allowed: {rule.told(rule.limit)})",
        subject=label_of(setup, change.device),
        observed=both(change),
        expected=rule.spelled(),
        evidence=tuple(filter(None, evidence)),
        next_step="measure once more; if it stays, compare versions, clocks and temperatures of both runs",
        required=True,
    )


def _unclear(setup: Setup, rule: Rule, worst: tuple[float, Change]) -> Finding:
    amount, change = worst
    return Finding(
        "fail_on",
        State.UNKNOWN,
        f"{_named(setup, change)} {rule.told(amount)} worse, which may be noise",
        subject=label_of(setup, change.device),
        observed=both(change),
        expected=rule.spelled(),
        evidence=(interval_text(change),),
        next_step="measure again with more time, for example --budget 2m",
        required=True,
    )


def _missing(setup: Setup, rule: Rule, places: Iterable[str]) -> Finding:
    where = ", ".join(dict.fromkeys(place for place in places if place))
    return Finding(
        "fail_on",
        State.UNKNOWN,
        f"{TITLES[rule.metric]} was not measured on both sides",
        expected=rule.spelled(),
        evidence=(f"only one side has: {where}",) if where else (),
        next_step="run both with the same --workload",
        required=True,
    )


def check_changes(comparison: Comparison, setup: Setup, margin: float, left_out: Iterable[str] = ()) -> list[Finding]:
    """change: whatever got worse by more than noise; warns above `margin` (ours: the margin that warns of stragglers,
    and 2 % for the temperature of the room), else tells. `left_out`: metrics that other rules judge.
    """
    skipped = {*left_out, "exposed"}
    found = [
        finding
        for metric in MORE_IS_BETTER
        if metric not in skipped and (finding := _worst(comparison, setup, metric, margin)) is not None
    ]
    if any(finding.state is State.WARN for finding in found):
        return found
    judged = [change for change in comparison.changes if change.gated and change.metric not in skipped]
    text = f"nothing got worse by more than {percent(margin)}: {counted(len(judged), 'value')} compared"
    return [*found, Finding("change", State.PASS, text)] if judged else found


def _worst(comparison: Comparison, setup: Setup, metric: str, margin: float) -> Finding | None:
    """The score is a share already: its points are held against the margin as they are."""
    share = margin + WIDER.get(metric, 0.0)
    rule = Rule(metric, 100 * share if metric == "score" else share, relative=metric != "score")
    changes = [c for c in comparison.changes if c.metric == metric and c.gated and c.real is not False]
    amounts = [(amount, change) for change in changes if (amount := rule.amount(change)) is not None]
    if not amounts:
        return None
    amount, change = max(amounts, key=lambda pair: pair[0])
    warns = amount > rule.limit
    if not warns and not (change.real and amount > 0):
        return None
    return Finding(
        "change",
        State.WARN if warns else State.INFO,
        f"{_named(setup, change)} {rule.told(amount)} worse",
        subject=label_of(setup, change.device),
        observed=both(change),
        expected=f"at most {rule.told(rule.limit)} worse",
        evidence=(interval_text(change),),
        next_step="measure once more; if it stays, compare versions, clocks and temperatures of both runs"
        if warns
        else None,
    )


def _named(setup: Setup, change: Change) -> str:
    place = place_of(setup, change.device, change.collective)
    return f"{place}: {TITLES[change.metric]}" if place else TITLES[change.metric]


def label_of(setup: Setup, device: int | None) -> str | None:
    """The whole identity of a device."""
    if device is None:
        return None
    known = setup.devices[device]
    return " ".join(filter(None, (place_of(setup, device, None), known.name, known.uuid)))


def both(change: Change) -> str:
    """Both values with their unit; of several runs the median."""
    scale, unit = scale_of(change.metric), UNITS[change.metric]
    base = f"{change.base / scale:.5g}"
    if change.runs > 1:
        base = f"{base} ({change.base_smallest / scale:.5g} to {change.base_largest / scale:.5g} in {change.runs} runs)"
    return f"{base} -> {change.new / scale:.5g} {unit}"


def interval_text(change: Change) -> str:
    """What noise leaves of the change, in words."""
    if change.low is None or change.high is None:
        return ONE_VALUE
    scale, unit = scale_of(change.metric), UNITS[change.metric]
    whose = "95 % interval" if change.runs == 1 else f"distance to the band of {change.runs} runs"
    return f"{whose}: {change.low / scale:+.4g} to {change.high / scale:+.4g} {unit}"

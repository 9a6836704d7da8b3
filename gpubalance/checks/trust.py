"""Where the measurement itself leaves no verdict: what else used the machine, clocks, and blocks that are not alike.

What takes the meaning from step times takes the verdict from every check of times, a failing one included; the others
only leave no verdict where nothing fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpubalance.analysis.facts import AttemptFacts, Facts
from gpubalance.analysis.sampled import window_of
from gpubalance.checks.finding import Finding, State, percent
from gpubalance.checks.identity import labels_of, name_of
from gpubalance.launch.plan import busy_with
from gpubalance.record.run import Run

TIMED = frozenset(
    {"straggler", "developing", "transient", "device_speed", "level", "too_small", "min_score", "history"}
)
"""Checks whose values are times of this run."""

VOIDING = frozenset({"shared", "used_before", "starved", "late", "clocks"})

SUSPENDED_S = 0.5
"""Ours: no scheduler makes the two clocks differ by more than microseconds, a suspension by seconds."""

WALL_CLOCK_S = 1.0
"""Ours: time servers slew smaller differences and step larger ones (chrony: makestep 1)."""

CORE_SHARE, PREEMPTED_PER_S = 0.7, 5.0
"""Ours. Ranks that keep their cores have 0.95 and more of them, and lose them once or twice a second to the kernel;
with eight busy processes on two cores it was 0.4, and 300 a second."""

LATE_SHARE = 0.25
"""Ours: share of the sensor's looks that came too late to be made. Sleepers are favoured by Linux's scheduler: none was
missed with eight busy processes on two cores."""

MORE_CPU = "stop what else runs here, or give fewer ranks (--nproc)"

FEWEST_STEPS = 5
"""Ours: a block of fewer steps has no median to speak of. Runs of our own make 20 and keep 18."""


def check_trust(run: Run, facts: Facts) -> list[Finding]:
    """Everything that speaks against the times of this run."""
    first = facts.first
    found = [*_shared(run), *_used_before(run), *_clock_of_day(run)]
    if first is None or len(first.device_of_rank) < 2:
        return found
    return [
        *found,
        *_starved(run, facts),
        *_late(run),
        *_clocks(facts),
        *_short_blocks(run),
        *_drift(facts, first),
        *_alike(first),
    ]


def settled(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, where something voids the times: without a verdict on any of them. Idempotent."""
    reasons = [finding for finding in findings if finding.id in VOIDING and finding.state is State.UNKNOWN]
    return [_unjudged(finding, reasons[0]) if reasons else finding for finding in findings]


def _unjudged(finding: Finding, reason: Finding) -> Finding:
    if finding.id not in TIMED or finding.state not in (State.FAIL, State.WARN, State.PASS):
        return finding
    since = () if finding.state is State.PASS else (f"since {reason.message}",)
    return replace(
        finding,
        state=State.UNKNOWN,
        message=f"not judged: {finding.message}",
        evidence=(*finding.evidence, *since),
        next_step=reason.next_step,
    )


def _void(finding_id: str, text: str, next_step: str, subject: str | None = None) -> Finding:
    return Finding(finding_id, State.UNKNOWN, text, subject=subject, next_step=next_step, required=True)


def _shared(run: Run) -> list[Finding]:
    if run.shared_with is None:
        return []
    text = f"{run.shared_with} was measuring on this machine when the run began"
    return [_void("shared", text, "wait until it is done, and measure again")]


def _used_before(run: Run) -> list[Finding]:
    """Only a run with --force gets so far."""
    if run.plan.backend != "nccl":
        return []
    devices = enumerate(run.plan.devices)
    used = [(index, busy) for index, device in devices if (busy := busy_with(device, run.node)) is not None]
    if not used:
        return []
    first, busy = used[0]
    others = f", and {len(used) - 1} more of the GPUs are in use" if len(used) > 1 else ""
    text = f"before the run {name_of(run, first)} {busy}{others}: times are about both"
    return [_void("used_before", text, "stop it and measure again", labels_of(run, first))]


def _clock_of_day(run: Run) -> list[Finding]:
    """A suspended machine is another one when it wakes up. A clock that was set is not: nothing is timed by it."""
    clocks = run.clocks
    if clocks is None:
        return []
    slept = 0.0 if clocks.boottime_s is None else clocks.boottime_s - clocks.monotonic_s
    if slept > SUSPENDED_S:
        text = f"the machine was suspended for {slept:.1f} s during the run: before and after it are not alike"
        return [_void("suspended", text, "keep it awake and measure again")]
    moved = clocks.wall_s - clocks.monotonic_s
    if abs(moved) > WALL_CLOCK_S:
        way = "forward" if moved > 0 else "back"
        text = f"the clock of the machine was set {way} by {abs(moved):.1f} s during the run; nothing is timed by it"
        return [Finding("wall_clock", State.INFO, text)]
    return []


def _starved(run: Run, facts: Facts) -> list[Finding]:
    """Ranks on the CPU that all had to share their cores: their times are then about the scheduler."""
    if run.plan.backend != "gloo":
        return []
    for attempt in facts.attempts:
        share, preempted = attempt.trust.core_share, attempt.trust.preempted_per_s
        if share is not None and preempted is not None and share < CORE_SHARE and preempted > PREEMPTED_PER_S:
            busy = run.node.cpu_busy_before
            before = "" if busy is None else f"; the host was {percent(busy)} busy before"
            text = f"no rank had its core for more than {percent(share)} of the time in which it computed"
            return [_void("starved", f"{text}: others use the cores{before}", MORE_CPU)]
    return []


def _late(run: Run) -> list[Finding]:
    """A sensor that hardly gets a turn shares its cores with the ranks. On GPUs steps are timed by the device, but what
    only the sensor sees may be missed.
    """
    health, window = run.samples.health, window_of(run, "ddp fenced")
    if health is None or window is None or window.end_s is None:
        return []
    if health.died_with is not None or (health.cost_ms_per_tick or 0.0) > 500 * health.interval_s:
        return []  # it ended early, or is busy with its own looks
    seen = sum(1 for t_s in run.samples.t_s if window.begin_s <= t_s <= window.end_s)
    wanted = (window.end_s - window.begin_s) / health.interval_s
    missed = 1 - (seen + 1) / wanted if wanted > 1 else 0.0
    if not run.samples.t_s or missed <= LATE_SHARE:
        return []
    text = f"the sensor came too late for {percent(missed)} of its looks while ranks were timed"
    if run.plan.backend != "gloo":
        unseen = "slowdowns of clocks and processes of others may have been missed"
        return [_void("unseen", f"{text}: {unseen}", "see what else uses the host's cores, and measure again")]
    return [_void("late", f"{text}: the host is short of CPU", MORE_CPU)]


def _clocks(facts: Facts) -> list[Finding]:
    for attempt in facts.attempts:
        apart = attempt.trust.clocks_apart
        if apart is not None and apart > facts.margin_warn / 2:
            text = f"clocks disagree by {percent(apart)} on how long a step takes, which all ranks leave together"
            return [_void("clocks", text, "please report it with the saved record")]
    return []


def _short_blocks(run: Run) -> list[Finding]:
    steps = len(run.ddp[0].ranks[0].fenced[0].compute_ms)
    if steps >= FEWEST_STEPS:
        return []
    text = f"blocks of {steps} steps are too short: a median needs {FEWEST_STEPS} or more"
    return [_void("short_blocks", text, "measure again with this version")]


def _drift(facts: Facts, first: AttemptFacts) -> list[Finding]:
    """All ranks growing slower together is nobody's fault, and no state that a verdict could be about."""
    drift = first.trust.common_drift
    if drift is None:
        return []
    way = "slower" if drift > 0 else "faster"
    text = f"all ranks grew {way}, by {percent(abs(drift))} or more from the first to the last quarter of the blocks"
    if abs(drift) <= facts.margin_fail:
        return [Finding("drift", State.INFO, text)]
    step = "give it more time, for example --budget 5m, so that clocks and temperatures settle"
    return [_void("drift", f"{text}: the node was not steady", step)]


def _alike(first: AttemptFacts) -> list[Finding]:
    alike = first.trust.alike
    if alike is None:
        return []
    text = f"blocks resemble the ones before them (correlation {alike:.2f} on rank {first.trust.alike_rank})"
    return [Finding("alike_blocks", State.INFO, f"{text}: chance names a rank in more than 1 % of such runs")]

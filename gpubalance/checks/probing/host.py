"""What the rules about the host share: a host that was not looked at, and a value of it that could not be read."""

from __future__ import annotations

from functools import wraps

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.probing.check import Rule, finding
from gpubalance.record.probe import Probe

RIGHTS = "run as root, or give the container the rights of the host"


def of_host(rule: Rule) -> Rule:
    """The same rule, skipped where the GPUs are simulated: this host has nothing to do with them."""

    @wraps(rule)
    def checked(probe: Probe) -> list[Finding]:
        if probe.simulated is not None:
            return [finding(State.SKIP, "not applicable: the GPUs are simulated")]
        return rule(probe)

    return checked


def not_read(probe: Probe, field: str, what: str) -> Finding:
    """Unknown, with the reason for which the field of HostDetail is null."""
    reason = probe.host.missing.get(field, "not read")
    step = RIGHTS if reason == "NO_PERMISSION" else f"see why {field} is null: {reason}"
    return finding(State.UNKNOWN, f"{what} not read: {reason}", next_step=step)

"""C5: variables that somebody set once, for a reason that has gone, and that training pays for ever since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.probing.check import Check, finding, gpus_of
from gpubalance.checks.probing.nccl_variables import COSTLY, LABELS, NVLS, SELECTORS, Variable
from gpubalance.record.probe import Probe

_ENVIRONMENT = "the environment"
_NVLS_GPUS, _HOPPER = 4, 9
_SHOWN = 20
"""Longer values stand in `observed` only."""


@dataclass(frozen=True)
class Given:
    """A variable that is set, and where."""

    name: str
    value: str
    place: str

    @property
    def text(self) -> str:
        """NAME=VALUE, without a value that would fill the line."""
        return f"{self.name}={self.value}" if len(self.value) <= _SHOWN else self.name

    @property
    def unset(self) -> str:
        """How to get rid of it."""
        return f"unset {self.name}" if self.place == _ENVIRONMENT else f"remove {self.name} from {self.place}"


def nccl_settings(probe: Probe) -> dict[str, Given]:
    """What NCCL, torch and gloo will read: the environment first, then NCCL's files in the order NCCL reads them."""
    environment = probe.node.environment if probe.node is not None else {}
    found = {
        name: Given(name, value, _ENVIRONMENT)
        for name, value in environment.items()
        if name.startswith(("NCCL_", "TORCH_NCCL_", "GLOO_")) or name == "TORCH_DISTRIBUTED_DEBUG"
    }
    for place, variables in probe.host.nccl_conf.items():
        for name, value in variables.items():
            found.setdefault(name, Given(name, value, place))
    return {name: given for name, given in found.items() if given.value.strip() and name not in LABELS}


def is_switched_on(probe: Probe, name: str) -> bool:
    """True for a switch of NCCL's that is set to anything but 0."""
    given = nccl_settings(probe).get(name)
    return given is not None and given.value.strip() != "0"


def variables(probe: Probe) -> list[Finding]:
    """C5: WARN for each variable whose value costs speed or safety, INFO for the others that are set.

    From NCCL's documentation, which asks that variables for debugging be unset in production. NCCL_NVLS_ENABLE=0 warns
    on four GPUs or more of Hopper or newer that have NVLinks.
    """
    if probe.node is None:
        message = "environment not known: the snapshot did not come"
        return [finding(State.UNKNOWN, message, next_step="see what keeps NVML from answering")]
    found = [each for given in nccl_settings(probe).values() for each in _judge(probe, given)]
    if not any(each.state is State.WARN for each in found):
        found.insert(0, finding(State.PASS, "no variable is set that slows NCCL or torch down"))
    return found


def _judge(probe: Probe, given: Given) -> Iterator[Finding]:
    known = _known(given.name)
    if known is not None and known.costs(given.value):
        state = State.INFO if known is NVLS and not _would_use_nvls(probe) else State.WARN
        yield _costly(state, known, given)
    elif given.name in SELECTORS:
        yield _set(given, f"{given.text} {SELECTORS[given.name]}")
    elif known is None:
        yield _set(given, f"{given.text} is set")


def _known(name: str) -> Variable | None:
    return next((variable for variable in (*COSTLY, NVLS) if variable.name == name), None)


def _would_use_nvls(probe: Probe) -> bool:
    capable = [
        gpu
        for gpu in gpus_of(probe)
        if (gpu.number("compute_capability_major") or 0) >= _HOPPER and gpu.number("nvlink_count")
    ]
    return len(capable) >= _NVLS_GPUS


def _costly(state: State, variable: Variable, given: Given) -> Finding:
    return finding(
        state,
        f"{given.text} {variable.effect}",
        observed=f"{given.name}={given.value}",
        expected="unset",
        evidence=(variable.why, f"set in {given.place}"),
        next_step=given.unset,
    )


def _set(given: Given, message: str) -> Finding:
    return finding(State.INFO, message, observed=f"{given.name}={given.value}", evidence=(f"set in {given.place}",))


CHECKS = (Check("C5", "variables of NCCL and torch", variables, "NCCL's documentation, environment variables"),)

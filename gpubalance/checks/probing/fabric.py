"""N5: the NVSwitch fabric that GPUs must join before their links carry anything. The links may all be up without it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of, not_measured
from gpubalance.checks.probing.measured import labels_of, numbers_of
from gpubalance.record.probe import Probe

UNHEALTHY = {0: "degraded bandwidth", 4: "an unhealthy route", 6: "recovery from access timeouts"}
"""Shift of a two-bit field of the health mask -> what 1 in it means (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*): 0 is not
supported, 1 yes, 2 no."""

RECOVERING_SHIFT = 2

MISCONFIGURED = {
    2: "wrong system GUID",
    3: "wrong chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "GPU firmware that does not fit",
    7: "wrong location",
    8: "GPU in an invalid state",
}
"""Bits 8 to 11 of the health mask; 0 is not supported, 1 is none."""

STEP = "see whether the fabric manager runs on the host and what its log says; then reset the GPU"


def fabric_joined(probe: Probe) -> list[Finding]:
    """N5: every GPU that needs a fabric has joined it without an error, and its health mask is clean.

    NVML is asked, not the fabric manager's service, which containers and some racks do not show (NVSentinel, gpud).
    """
    gpus = gpus_of(probe)
    found = list(not_measured(gpus, "fabric_state", "NVSwitch fabric"))
    problems: dict[tuple[State, str], list[Gpu]] = defaultdict(list)
    joined = []
    for gpu in gpus:
        state = gpu.value("fabric_state")
        if state is None or state == "NOT_SUPPORTED":
            continue
        joined.append(gpu)
        for problem in _problems(gpu, str(state)):
            problems[problem].append(gpu)
    found += [_problem(state, text, ill, len(gpus)) for (state, text), ill in problems.items()]
    if joined and not problems:
        found.append(finding(State.PASS, f"{counted(len(joined), 'GPU')} joined the NVSwitch fabric"))
    if gpus and not joined and not found:
        found.append(finding(State.SKIP, "no GPU here needs an NVSwitch fabric"))
    return found


def _problem(state: State, text: str, ill: list[Gpu], count: int) -> Finding:
    who = f"all {count} GPUs" if len(ill) == count > 1 else numbers_of(ill)
    return finding(state, f"{text} on {who}", subject=labels_of(ill), next_step=STEP)


def _problems(gpu: Gpu, state: str) -> Iterator[tuple[State, str]]:
    if state != "COMPLETED":
        known = state in ("NOT_STARTED", "IN_PROGRESS")
        yield State.FAIL if known else State.UNKNOWN, f"NVSwitch fabric not joined ({state})"
        return
    status, mask = gpu.number("fabric_status"), gpu.number("fabric_health_mask")
    if status:
        yield State.FAIL, f"NVSwitch fabric joined with error {status:.0f}"
    for text in health_problems(int(mask or 0)):
        yield State.FAIL, f"NVSwitch fabric reports {text}"
    if int(mask or 0) >> RECOVERING_SHIFT & 0x3 == 1:
        yield State.WARN, "NVSwitch fabric is recovering a route"


def health_problems(mask: int) -> list[str]:
    """What a health mask says is wrong for good."""
    found = [text for shift, text in UNHEALTHY.items() if mask >> shift & 0x3 == 1]
    configuration = mask >> 8 & 0xF
    if configuration > 1:
        found.append(MISCONFIGURED.get(configuration, f"wrong configuration {configuration}"))
    return found


CHECKS = (
    Check("N5", "fabric of NVSwitches", fabric_joined, "NVSentinel, gpud: COMPLETED, status 0, clean health mask"),
)

"""Q5: are the limits that everything is held against right?"""

from __future__ import annotations

from gpubalance.checks.finding import Finding, State, percent
from gpubalance.checks.probing.check import Check, finding, gpus_of
from gpubalance.record.limits import gemm_limit_tflops, memory_limit_gb_per_s, published
from gpubalance.record.probe import Probe

DIFFERENCE = 0.15
"""Maximum clocks lie up to 8 % above the published boost clocks of the same parts."""


def limits_agree(probe: Probe) -> list[Finding]:
    """Q5: limits derived from the driver's own words against the published ones, where the model is known.

    A difference means that one of them is wrong, so that shares of a limit deserve no trust until it is understood.
    """
    found: list[Finding] = []
    checked, unknown = [], []
    for gpu in gpus_of(probe):
        model = published(gpu.device.name)
        if model is None:
            unknown.append(gpu.device.name)
            continue
        clock = gpu.number("sm_clock_max_mhz")
        for what, unit, derived, known in (
            ("memory bandwidth", "GB/s", memory_limit_gb_per_s(gpu.device), model.memory_gb_per_s),
            ("matrix product", "TFLOP/s", gemm_limit_tflops(gpu.device, clock), model.tflops),
        ):
            if derived is None or ("GeForce" in gpu.device.name and unit == "TFLOP/s"):
                continue  # GeForce parts clock a fifth above the published boost clock
            checked.append(gpu)
            if abs(derived / known - 1) > DIFFERENCE:
                found.append(
                    finding(
                        State.WARN,
                        f"{what} limit of {gpu.name} is not the published one",
                        subject=gpu.label,
                        observed=f"{derived:.0f} {unit} derived from clocks and widths",
                        expected=f"{known:.0f} {unit} ({model.source})",
                        next_step="compare clocks and model with the data sheet; report it if the derivation is wrong",
                    )
                )
    found += [
        finding(State.INFO, f"{name}: no published peaks known, limits are derived") for name in sorted(set(unknown))
    ]
    if checked and not any(f.state is State.WARN for f in found):
        found.append(finding(State.PASS, f"derived limits are within {percent(DIFFERENCE)} of the published ones"))
    return found


CHECKS = (
    Check("Q5", "derived limits", limits_agree, "15 %: maximum clocks lie up to 8 % above published boost clocks"),
)

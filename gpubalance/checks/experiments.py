"""What `--what-if` found, where it is more than a number: a variable that is set and costs something, or a way that
does not work at all.
"""

from __future__ import annotations

from gpubalance.analysis.experiments import costs_of
from gpubalance.analysis.facts import Facts
from gpubalance.checks.finding import Finding, State
from gpubalance.record.experiment import Arm, Experiment
from gpubalance.record.run import Run

MEND_P2P = "turn IOMMU and ACS off on bare metal (lspci -vvv, ACSCtl), or update the driver"


def check_experiments(run: Run, facts: Facts) -> list[Finding]:
    """One finding an experiment that says something about this node; none where all is as it should be."""
    return [finding for experiment in run.experiments for finding in _p2p(experiment)]


def _p2p(experiment: Experiment) -> list[Finding]:
    on, off = experiment.arms
    is_off = experiment.found not in (None, "", "0")
    if _wrong(on) or _wrong(off):
        return [_wrong_sums(experiment, on, off, is_off=is_off)]
    if _broken(on):
        works = "" if _broken(off) else f", works with {experiment.variable}=1"
        text = f"all_reduce with peer-to-peer does not end well ({on.missing}){works}"
        return [Finding("what_if_p2p", State.WARN, text, expected="peer-to-peer works", next_step=MEND_P2P)]
    costs = costs_of(experiment)
    if not costs:
        why = off.missing or on.missing or "it was not measured"
        return [Finding("what_if_p2p", State.UNKNOWN, f"what peer-to-peer is worth is not known: {why}")]
    largest = costs[-1]
    if not is_off or largest.is_same or largest.factor < 1:
        return []
    return [
        Finding(
            "what_if_p2p",
            State.WARN,
            f"{experiment.variable}={experiment.found} is set here and costs a factor of {largest.factor:.1f}",
            observed=f"{largest.switched_off_gb_per_s:.1f} GB/s",
            expected=f"{largest.as_nccl_does_gb_per_s:.1f} GB/s without it",
            next_step="unset it, in scripts, images and nccl.conf",
        )
    ]


def _wrong_sums(experiment: Experiment, on: Arm, off: Arm, *, is_off: bool) -> Finding:
    """What jobs get here fails; the other way only warns."""
    ways = [f"{_wrong(arm)} {how} peer-to-peer" for arm, how in ((on, "with"), (off, "without")) if _wrong(arm)]
    works = "" if _wrong(off) or _broken(off) else f", right with {experiment.variable}=1"
    return Finding(
        "what_if_p2p",
        State.FAIL if _wrong(off if is_off else on) else State.WARN,
        f"all_reduce gives wrong elements: {' and '.join(ways)}{works}",
        expected="exact sums",
        next_step=f"do not train on this node; {MEND_P2P}",
    )


def _wrong(arm: Arm) -> int:
    return sum(row.wrong_elements for row in arm.rows)


def _broken(arm: Arm) -> bool:
    return arm.missing is not None and not arm.rows

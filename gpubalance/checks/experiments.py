"""What `--what-if` found, where it is more than a number: a variable that is set and costs something, or a way that
does not work at all.
"""

from __future__ import annotations

from gpubalance.analysis.experiments import costs_of
from gpubalance.analysis.facts import Facts
from gpubalance.checks.finding import Finding, State
from gpubalance.record.experiment import Arm, Experiment
from gpubalance.record.run import Run


def check_experiments(run: Run, facts: Facts) -> list[Finding]:
    """One finding an experiment that says something about this node; none where all is as it should be."""
    return [finding for experiment in run.experiments for finding in _p2p(experiment)]


def _p2p(experiment: Experiment) -> list[Finding]:
    on, off = experiment.arms
    if _broken(on):
        works = "" if _broken(off) else f", works with {experiment.variable}=1"
        return [
            Finding(
                "what_if_p2p",
                State.WARN,
                f"all_reduce with peer-to-peer {_how(on)}{works}",
                expected="peer-to-peer works",
                next_step="turn IOMMU and ACS off on bare metal (lspci -vvv, ACSCtl), or update the driver",
            )
        ]
    costs = costs_of(experiment)
    if not costs:
        why = off.missing or on.missing or "it was not measured"
        return [Finding("what_if_p2p", State.UNKNOWN, f"what peer-to-peer is worth is not known: {why}")]
    largest = costs[-1]
    if experiment.found in (None, "", "0") or largest.is_same or largest.factor < 1:
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


def _broken(arm: Arm) -> bool:
    return any(row.wrong_elements for row in arm.rows) or (arm.missing is not None and not arm.rows)


def _how(arm: Arm) -> str:
    wrong = sum(row.wrong_elements for row in arm.rows)
    return f"gives {wrong} wrong elements" if wrong else f"does not end well ({arm.missing})"

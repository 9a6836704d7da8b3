"""Checks on the steps as a whole: slowness that comes and goes, uneven work, level, and what the score can say."""

from __future__ import annotations

from gpubalance.analysis.causes_host import throttled
from gpubalance.analysis.facts import AttemptFacts, Facts
from gpubalance.checks.cause_words import FOLLOWS, cause_of, clause, held_against, lines, next_step
from gpubalance.checks.finding import INJECTED, Finding, State, percent
from gpubalance.checks.identity import rank_label
from gpubalance.record.gates import gates_of
from gpubalance.record.run import Run


def check_transient(run: Run, facts: Facts) -> list[Finding]:
    """Loss through slowness now and then, beyond what jitter alone would cost."""
    first = facts.first
    if first is None or len(first.device_of_rank) < 2:
        return []
    seen = first.transient
    share = percent(seen.loss)
    if seen.state == "ok":
        return [
            Finding(
                "transient",
                State.PASS,
                f"slowness now and then costs {percent(max(0.0, seen.loss))}",
                required=True,
            )
        ]
    second = facts.attempts[1] if len(facts.attempts) > 1 else None
    state, rank, note, follows = State(seen.state), seen.rank, "", None
    if seen.state == "fail":
        state, rank, note, follows = _second_look(first, second)
    cause = None if rank is None else held_against(cause_of(first, rank), follows)
    who = "no single rank: host noise, shared cores or network" if rank is None else f"mostly rank {rank}"
    told = throttled(run) if rank is None else lines(cause)
    return [
        Finding(
            "transient",
            state,
            f"ranks that are slow now and then cost {share} of the step rate "
            f"({'rotating' if rank is None else seen.kind}, {who}){clause(cause)}",
            subject=None if rank is None else rank_label(run, rank, first.device_of_rank[rank]),
            observed=share,
            expected=f"at most {percent(seen.gate_warn)} (fails above {percent(seen.gate_fail)}); "
            f"ordinary jitter of these ranks costs {percent(seen.allowance)}",
            evidence=tuple(line for line in (note, *told) if line),
            next_step=INJECTED if run.injected else next_step(cause) or "look for other processes on the host",
            required=True,
        )
    ]


def _second_look(first: AttemptFacts, second: AttemptFacts | None) -> tuple[State, int | None, str, str | None]:
    """Of a loss that fails: its state, the rank that leads it in both attempts, what to say, and what it followed."""
    rank = first.transient.rank
    if second is None or second.transient.state != "fail":
        return State.UNKNOWN, rank, "not confirmed by a second run", None
    other, again = second.transient.rank, "seen again in a second run"
    if rank is None or other is None:
        return State.FAIL, None, again, None
    devices = (first.device_of_rank[rank], second.device_of_rank[other])
    if other == rank and devices[0] == devices[1]:
        return State.FAIL, rank, again, None
    if other == rank:
        return State.FAIL, rank, FOLLOWS["rank"], "rank"
    if devices[0] == devices[1]:
        return State.FAIL, rank, FOLLOWS["device"], "device"
    return State.FAIL, None, f"{again}, mostly on rank {other} instead of rank {rank}", None


def check_units(run: Run, facts: Facts) -> list[Finding]:
    """More data on one rank is a real loss, but no slow device."""
    first = facts.first
    samples = [rank.samples_per_step for rank in run.ddp[0].ranks] if run.ddp else []
    if first is None or max(samples) <= min(samples) * (1 + facts.margin_warn):
        return []
    rank = samples.index(max(samples))
    planned = run.plan.per_rank_batch
    cause = cause_of(first, rank)
    of_data = cause is not None and cause.cause == "data_imbalance"
    return [
        Finding(
            "data_imbalance",
            State.WARN,
            f"rank {rank} has {samples[rank] / planned:.2f} x the data of a rank; it is given more, it is not slower",
            subject=rank_label(run, rank, first.device_of_rank[rank]),
            evidence=(
                "time per unit is what the device is judged by",
                *((f"its step takes {percent(cause.excess)} longer{clause(cause)}",) if cause and of_data else ()),
            ),
            next_step=INJECTED if run.injected else "split the data evenly",
        )
    ]


def check_level(run: Run, facts: Facts) -> list[Finding]:
    """Evenness and level are two numbers: where no device usefully computes for 30 % of a step (ours), the node is even
    but starved.
    """
    use = facts.utilization
    if use.missing is not None or not use.useful or None in use.useful:
        return []
    if any(use.host_bound):
        return [
            Finding(
                "too_small",
                State.UNKNOWN,
                "workload too small to judge: launching a step takes longer than computing it",
                next_step="give a larger --batch",
                required=True,
            )
        ]
    levels = [level for level in use.useful if level is not None]
    starved = gates_of(run)["level_warn"]
    if max(levels) < starved:
        return [
            Finding(
                "level",
                State.WARN,
                f"even but starved: no device computes more than {percent(max(levels))} of a step",
                observed=percent(max(levels)),
                expected=f"at least {percent(starved)}",
                next_step="compare host time and transfer: a faster host or link would help, balance would not",
            )
        ]
    return [Finding("level", State.PASS, f"devices compute {percent(min(levels))} of a step or more")]


def check_communication(run: Run, facts: Facts) -> list[Finding]:
    """A node that mostly communicates hides part of a straggler: the score is then a lower bound."""
    first = facts.first
    if first is None or not first.balance.communication_bound:
        return []
    ratio = first.balance.transfer_ms / first.balance.reference_ms
    return [
        Finding(
            "communication_bound",
            State.INFO,
            f"communication-bound: moving gradients takes {ratio:.2f} x the compute, so the score is a lower bound",
        )
    ]


def check_score(run: Run, facts: Facts) -> list[Finding]:
    """`--min-score`, for those who want one number to gate on."""
    setting = run.settings.get("min_score")
    wanted = setting.value if setting else None
    if not isinstance(wanted, int | float):
        return []
    if facts.first is None:
        return [
            Finding(
                "min_score",
                State.UNKNOWN,
                "no score was measured, and --min-score asks for one",
                next_step="have the ddp workload run to its end",
                required=True,
            )
        ]
    score = facts.first.balance.score
    text = f"balance {score:.1f}, --min-score asks for {wanted:g}"
    if score >= wanted:
        return [Finding("min_score", State.PASS, text, required=True)]
    step = "the factors of the score say what costs most: steady slowness, or slowness now and then"
    return [Finding("min_score", State.FAIL, text, next_step=step, required=True)]

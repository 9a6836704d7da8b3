"""Is a rank steadily slower than its peers? Nobody is failed on one look: a failing attempt is repeated in fresh
processes with ranks moved to other devices, and what the slowness follows says what it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpubalance.analysis.causes import MOST_EXPLAINED
from gpubalance.analysis.facts import AttemptFacts, Facts
from gpubalance.analysis.stragglers import RankSpeed
from gpubalance.checks.cause_words import FOLLOWS, cause_of, clause, held_against, lines, next_step, shared_cause
from gpubalance.checks.evidence import sensor_evidence, time_class
from gpubalance.checks.finding import INJECTED, Finding, State, listed, percent
from gpubalance.checks.identity import rank_label
from gpubalance.record.run import Run

ID = "straggler"

MOST_NAMED = 16
"""Slow ranks that are described one by one, the worst; of thousands nobody reads more (ours)."""


def check_straggler(run: Run, facts: Facts) -> list[Finding]:
    """Section "Stragglers" of the README."""
    if len(run.plan.devices) < 2:
        return [Finding(ID, State.SKIP, "one device: there is no peer to be slower than")]
    if "ddp" not in run.plan.workloads:
        return [Finding(ID, State.SKIP, "stragglers not looked for: the ddp workload was not asked for")]
    first = facts.first
    if first is None:
        step = "what ended the run before that stands beside this; see to it and run again"
        return [Finding(ID, State.UNKNOWN, "no block of the ddp phase was finished", next_step=step, required=True)]
    return [*_compared(run, facts, first), *_own_kinds(first), *_developing(run, facts, first)]


def _compared(run: Run, facts: Facts, first: AttemptFacts) -> list[Finding]:
    if first.stragglers.compared == 0:
        return [Finding(ID, State.SKIP, "no two devices are of one kind: there is no peer to be slower than")]
    if first.stragglers.state == "developing":
        return []
    if first.stragglers.state != "ok":
        return _not_ok(run, facts, first)
    whom = "its peers" if len(first.kinds) < 2 else "its peers of the same kind"
    return [Finding(ID, State.PASS, f"nothing is slower than {whom} by {percent(facts.margin_fail)}", required=True)]


def _own_kinds(first: AttemptFacts) -> list[Finding]:
    """Different devices in one node: what each is held against, and who sets the pace."""
    if len(first.kinds) < 2:
        return []
    names = " and ".join(f"{len(kind.ranks)} x {kind.name}" for kind in first.kinds)
    fastest, slowest = (pick(kind.compute_ms for kind in first.kinds) for pick in (min, max))
    alone = [str(kind.ranks[0]) for kind in first.kinds if len(kind.ranks) == 1]
    without = f"rank {', '.join(alone)} has no peer of its kind and is held against nobody"
    return [
        Finding(
            "kinds",
            State.INFO,
            f"{names}: each is held against its own kind; the slower kind sets the pace: "
            f"{slowest:.2f} ms against {fastest:.2f} ms",
            evidence=(without,) if alone else (),
            next_step="give the slower kind a smaller batch, or train on one kind only",
        )
    ]


def _developing(run: Run, facts: Facts, first: AttemptFacts) -> list[Finding]:
    """Ranks that were not slow all the time, but grow slower; a warning once they are beyond the margin. The slowest
    at the end, of many.
    """
    findings = []
    rising = [speed for speed in first.stragglers.ranks if speed.state == "developing"]
    for speed in sorted(rising, key=lambda speed: -speed.last_ratio)[:MOST_NAMED]:
        late = speed.last_ratio > 1 + facts.margin_warn
        cause = cause_of(first, speed.rank) if late else None
        findings.append(
            Finding(
                "developing",
                State.WARN if late else State.INFO,
                f"{_lost(speed)}: {_at_the_end(speed)}{clause(cause)}",
                subject=rank_label(run, speed.rank, first.device_of_rank[speed.rank]),
                expected=f"at most {1 + facts.margin_warn:.2f} x the compute time of its peers" if late else None,
                evidence=(*sensor_evidence(facts, speed.rank), *lines(cause)) if late else (),
                next_step=_developing_step(run, next_step(cause)),
                required=late,
            )
        )
    return findings


def _developing_step(run: Run, of_cause: str | None) -> str:
    if run.injected:
        return INJECTED
    return of_cause or "give it more time, for example --budget 5m, and see where it ends"


def _at_the_end(speed: RankSpeed) -> str:
    behind = speed.last_ratio - 1
    return f"{percent(behind)} slower than its peers at the end" if behind > 0 else "not slower than its peers yet"


def _lost(speed: RankSpeed) -> str:
    """Rank 1 lost 18 % of its speed over 120 s."""
    over = "" if speed.lost_over_s is None else f" over {speed.lost_over_s:.0f} s"
    return f"rank {speed.rank} lost {percent(speed.lost or 0.0)} of its speed{over}"


def _not_ok(run: Run, facts: Facts, first: AttemptFacts) -> list[Finding]:
    if first.stragglers.state == "unclear":
        return [_too_noisy(run, facts, first)]
    if first.stragglers.state == "warn":
        named = first.stragglers.named
        worst = [_slow(run, facts, first, speed, State.WARN, ()) for speed in named[:MOST_NAMED]]
        return worst + _others(named[MOST_NAMED:], first, None)
    return _confirmed(run, facts, first)


def needs_confirmation(first: AttemptFacts) -> bool:
    """True when this attempt alone would fail the node: it is then repeated before anybody says so."""
    return first.stragglers.state == "fail" or first.transient.state == "fail"


def _confirmed(run: Run, facts: Facts, first: AttemptFacts) -> list[Finding]:
    second = facts.attempts[1] if len(facts.attempts) > 1 else None
    if first.stragglers.majority_slow:
        return [_majority(run, first, second)]
    findings = []
    named = first.stragglers.named
    for speed in named[:MOST_NAMED]:
        if speed.state == "warn":
            findings.append(_slow(run, facts, first, speed, State.WARN, ()))
            continue
        follows = _follows(first, second, speed)
        if follows is None:
            findings.append(_unconfirmed(run, first, second, speed))
        else:
            findings.append(_slow(run, facts, first, speed, State.FAIL, (follows,)))
    return findings + _others(named[MOST_NAMED:], first, second)


def _others(speeds: Sequence[RankSpeed], first: AttemptFacts, second: AttemptFacts | None) -> list[Finding]:
    """Slow ranks beyond those that are described, by state; a failing one is confirmed by the rule of `_follows`."""
    ranks, devices = (_failed(second), _failed_devices(second)) if second is not None else (set[int](), set[int]())
    by_state: dict[State, list[RankSpeed]] = {}
    for speed in speeds:
        again = speed.rank in ranks or first.device_of_rank[speed.rank] in devices
        state = State.WARN if speed.state == "warn" else State.FAIL if again else State.UNKNOWN
        by_state.setdefault(state, []).append(speed)
    unexplained = (f"causes were looked for on the {MOST_EXPLAINED} slowest",) if first.not_explained else ()
    return [_counted_only(state, group, unexplained) for state, group in by_state.items()]


def _counted_only(state: State, group: Sequence[RankSpeed], unexplained: tuple[str, ...]) -> Finding:
    excess = percent(group[0].ratio - 1)
    text = "1 more rank is slower than its peers, by" if len(group) == 1 else (
        f"{len(group)} more ranks are slower than their peers, by up to"
    )  # fmt: skip
    return Finding(
        ID,
        state,
        f"{text} {excess}" + (", not confirmed" if state is State.UNKNOWN else ""),
        evidence=(f"{'rank' if len(group) == 1 else 'ranks'} {listed([speed.rank for speed in group])}", *unexplained),
        next_step="the saved record has all of them: gpubalance report FILE --to json",
        required=True,
    )


def _follows(first: AttemptFacts, second: AttemptFacts | None, speed: RankSpeed) -> str | None:
    """What the slowness followed in the second attempt, in words; None when it was gone.

    Where neighbours are slow together, a rank may be slow again because it moved to its neighbour's device: then the
    reading that explains more of both attempts counts.
    """
    if second is None:
        return None
    device = first.device_of_rank[speed.rank]
    by_rank, by_device = speed.rank in _failed(second), device in _failed_devices(second)
    if second.device_of_rank[speed.rank] == device:
        return "seen again in a second run" if by_rank else None
    same_ranks = len(_failed(first) & _failed(second))
    same_devices = len(_failed_devices(first) & _failed_devices(second))
    if by_device and not (by_rank and same_ranks > same_devices):
        return FOLLOWS["device"]
    if by_rank:
        return FOLLOWS["rank"]
    return None


def _failed(attempt: AttemptFacts) -> set[int]:
    return {rank.rank for rank in attempt.stragglers.named if rank.state == "fail"}


def _failed_devices(attempt: AttemptFacts) -> set[int]:
    return {attempt.device_of_rank[rank] for rank in _failed(attempt)}


def _slow(
    run: Run, facts: Facts, first: AttemptFacts, speed: RankSpeed, state: State, extra: tuple[str, ...]
) -> Finding:
    device = first.device_of_rank[speed.rank]
    peer = _only_peer(first, speed.rank)
    two = peer is not None
    peers = f"rank {peer}" if two else "its peers"
    blocks = first.stragglers.blocks
    over = speed.blocks_over_fail if state is State.FAIL else speed.blocks_over_warn
    margin = facts.margin_fail if state is State.FAIL else facts.margin_warn
    excluded = blocks - speed.blocks_over_fail >= (first.stragglers.needed or 0)
    evidence = [
        *extra,
        f"over {percent(margin)} in {over} of {blocks} blocks ({first.stragglers.needed} needed)",
    ]
    evidence += [f"{percent(facts.margin_fail)} not excluded"] if state is State.WARN and not excluded else []
    evidence += ["with two ranks, which of them is the abnormal one needs a baseline"] if two else []
    evidence += [f"developing: {_lost(speed)}"] if speed.lost is not None else []
    cause = held_against(cause_of(first, speed.rank), _followed(extra))
    evidence += [time_class(run, first, speed, cause), *sensor_evidence(facts, speed.rank), *lines(cause)]
    return Finding(
        ID,
        state,
        f"rank {speed.rank} is {percent(speed.ratio - 1)} slower than {peers} and {_cost(first, speed.rank)}"
        f"{clause(cause)}",
        subject=rank_label(run, speed.rank, device),
        observed=f"{speed.ratio:.3f} x the compute time of {peers}",
        expected=f"at most {1 + facts.margin_warn:.2f} x (fails above {1 + facts.margin_fail:.2f} x)",
        evidence=tuple(line for line in evidence if line),
        next_step=_next_step(run, extra, next_step(cause)),
        required=True,
    )


def _cost(first: AttemptFacts, rank: int) -> str:
    """Its own part of the loss: of several slow ranks each answers for what it adds."""
    cost = percent(max(0.0, first.balance.steady_cost[rank]))
    return "costs nothing, as slower ranks set the pace" if cost == percent(0.0) else f"costs {cost} of the step rate"


def _followed(extra: tuple[str, ...]) -> str | None:
    return next((what for what, text in FOLLOWS.items() if text in extra), None)


def _only_peer(first: AttemptFacts, rank: int) -> int | None:
    """The other rank, where there are two of a kind; None where there are more."""
    ranks = next((kind.ranks for kind in first.kinds if len(kind.ranks) == 2 and rank in kind.ranks), ())
    return next((other for other in ranks if other != rank), None)


def _next_step(run: Run, extra: tuple[str, ...], of_cause: str | None) -> str:
    if run.injected:
        return INJECTED
    if of_cause is not None:
        return of_cause
    if _followed(extra) == "rank":
        return "look at what this rank's process shares: its cores, its data, other processes on them"
    return "look at the clocks, temperature and processes of that device; drain the node if it stays"


def _unconfirmed(run: Run, first: AttemptFacts, second: AttemptFacts | None, speed: RankSpeed) -> Finding:
    return Finding(
        ID,
        State.UNKNOWN,
        f"not confirmed: rank {speed.rank} was {percent(speed.ratio - 1)} slower than its peers, "
        f"which {_why_unconfirmed(first, second, speed)}",
        subject=rank_label(run, speed.rank, first.device_of_rank[speed.rank]),
        next_step="run again with more time, for example --budget 2m",
        required=True,
    )


def _why_unconfirmed(first: AttemptFacts, second: AttemptFacts | None, speed: RankSpeed) -> str:
    if second is None:
        return "could not be looked at again"
    if second.stragglers.needed is None:
        return "the second run was too short to tell"
    moved_to = second.device_of_rank.index(first.device_of_rank[speed.rank])
    states = {rank.state for rank in second.stragglers.ranks if rank.rank in (speed.rank, moved_to)}
    return "was gone in the second run" if states == {"ok"} else "the second run did not show clearly"


def _majority(run: Run, first: AttemptFacts, second: AttemptFacts | None) -> Finding:
    slow, count = first.stragglers.majority, first.stragglers.majority_of
    again = second is not None and second.stragglers.majority_slow > 0
    follows = _majority_follows(first, second)
    cause = shared_cause([held_against(cause_of(first, speed.rank), follows) for speed in slow])
    least, most = (percent(round(pick(speed.ratio - 1 for speed in slow), 2)) for pick in (min, max))
    behind = most if least == most else f"{least} to {most}"
    return Finding(
        ID,
        State.FAIL if again else State.UNKNOWN,
        f"majority slow: {len(slow)} of {count} ranks are {behind} slower than the fast ones"
        + (cause.clause if again else ", not confirmed"),
        evidence=(
            f"ranks {listed([speed.rank for speed in slow])}",
            *([f"seen again with ranks rotated: it follows the {follows}s"] if follows else []),
            "with more than half of the ranks slow, no error rate is guaranteed",
            *cause.lines,
        ),
        next_step=INJECTED
        if run.injected
        else cause.next_step or "compare the fast devices with the slow ones: socket, power limit, clocks",
        required=True,
    )


def _majority_follows(first: AttemptFacts, second: AttemptFacts | None) -> str | None:
    """What a slow majority kept to when ranks changed devices: the same ranks, or the same devices; None when neither
    or both were slow again.
    """
    if second is None:
        return None
    looks = (first, second)
    ranks = [{speed.rank for speed in look.stragglers.majority} for look in looks]
    devices = [{look.device_of_rank[rank] for rank in slow} for look, slow in zip(looks, ranks, strict=True)]
    same_ranks, same_devices = ranks[0] == ranks[1], devices[0] == devices[1]
    return None if same_ranks == same_devices else "rank" if same_ranks else "device"


def _too_noisy(run: Run, facts: Facts, first: AttemptFacts) -> Finding:
    worst = max((rank for rank in first.stragglers.ranks if rank.state == "unclear"), key=lambda rank: rank.ratio)
    blocks, needed = first.stragglers.blocks, first.stragglers.needed
    margin = percent(facts.margin_fail)
    evidence: tuple[str, ...] = ()
    if needed is None:
        text = f"only {blocks} blocks were finished, too few for any verdict"
    else:
        text = f"the machine is too noisy to tell a {margin} straggler from chance"
        within = blocks - worst.blocks_over_fail
        split = f"over {margin} in {worst.blocks_over_fail} and within it in {within} of {blocks} blocks"
        evidence = (f"rank {worst.rank} was {split}, {needed} are needed either way",)
    busy = run.node.cpu_busy_before
    evidence += (f"host CPU {percent(busy)} busy before the run",) if busy is not None else ()
    return Finding(
        ID, State.UNKNOWN, text, evidence=evidence, required=True,
        next_step="stop what else runs here, or give it more time, for example --budget 5m",
    )  # fmt: skip

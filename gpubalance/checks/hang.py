"""What is said of a hang: who was where, whether fresh processes hang as well, and which switch cures it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpubalance.analysis.facts import Facts
from gpubalance.checks.finding import Finding, State
from gpubalance.checks.identity import device_label
from gpubalance.record.hang import Bisection, BisectTrial, HangReport, RankHang, entered_words, process_words
from gpubalance.record.node import Device
from gpubalance.record.run import Run, RunError

MOST_RANKS, MOST_LINES = 8, 2

RAS_WORDS = ("INCOMPLETE", "DEAD", "MISMATCH", "ERROR", "ABORT", "unresponsive")
"""Marks of lines in RAS' answer that say what is wrong; the whole answer is in the record."""


@dataclass(frozen=True)
class Cure:
    """What it means that a switch cures a hang, and what to do."""

    meaning: str
    step: str


CURES = {
    "NCCL_P2P_DISABLE=1": Cure(
        "peer-to-peer is broken between them (IOMMU or ACS, or a driver that claims access it does not give)",
        "turn IOMMU and ACS off on bare metal (lspci -vvv, ACSCtl), or keep NCCL_P2P_DISABLE=1 and pay for it: "
        "--what-if p2p says how much",
    ),
    "NCCL_NVLS_ENABLE=0": Cure(
        "multicast through the NVSwitch (NVLS) is broken",
        "restart nvidia-fabricmanager, see that a container has /dev/nvidia-caps, or keep NCCL_NVLS_ENABLE=0",
    ),
    "NCCL_SHM_DISABLE=1": Cure(
        "shared host memory between the ranks is broken",
        "see `df /dev/shm`; in a container give --shm-size=1g or --ipc=host",
    ),
    "NCCL_CUMEM_ENABLE=0": Cure(
        "memory shared through cuMem handles is broken",
        "in a container give --cap-add SYS_NICE; else update driver and NCCL, or keep NCCL_CUMEM_ENABLE=0",
    ),
    "GLOO_SOCKET_IFNAME=lo": Cure(
        "the interface that GLOO_SOCKET_IFNAME names cannot be used",
        "unset it, or name an interface that is up and has an address: ip -br address",
    ),
}


def hang_evidence(run: Run, error: RunError) -> tuple[str, ...]:
    """Where each rank was, and what NCCL said of it; () for an error that is no hang."""
    hang = run.hang
    if hang is None or hang.attempt != error.attempt or error.kind not in ("stalled", "absent"):
        return _search_left_out(run)
    ranks = sorted(hang.ranks, key=lambda rank: not rank.named)
    lines = [_rank_line(rank, hang.crew) for rank in ranks[:MOST_RANKS]]
    lines += [f"and {len(ranks) - MOST_RANKS} more ranks"] if len(ranks) > MOST_RANKS else []
    if hang.crew == "node":  # it enters no fences: its own lines say how far it came
        lines += [f"the last line of its log: {rank.last_line}" for rank in ranks if rank.last_line]
    lines += [f"rank {rank.rank}: {line}" for rank in ranks for line in rank.warnings[-MOST_LINES:]][: 2 * MOST_LINES]
    lines += _ras_lines(hang)
    lines += [f"flight recorder: {path}" for path in hang.flight_recorder]
    lines += [f"the driver did not answer meanwhile: {hang.driver_silent}"] if hang.driver_silent else []
    lines += [f"Xid {xid.xid} on GPU {xid.nvml_index}, {xid.t_s:.0f} s after the start" for xid in run.samples.xids]
    return (*lines, *_search_left_out(run))


def _rank_line(rank: RankHang, crew: str) -> str:
    who = f"rank {rank.rank}" if crew == "ranks" else "the process that sees all devices"
    where = f", in {rank.python_at}" if rank.python_at else ""
    return f"{who}: came to {entered_words(rank)}; {process_words(rank)}{where}"


def _ras_lines(hang: HangReport) -> list[str]:
    if hang.ras is None:
        return []
    marked = [line.strip() for line in hang.ras.splitlines() if any(word in line for word in RAS_WORDS)]
    return [f"NCCL RAS: {line}" for line in marked[:MOST_LINES]] or ["NCCL RAS answered, and names nobody"]


def _search_left_out(run: Run) -> tuple[str, ...]:
    if run.bisection is None or run.bisection.left_out is None or run.bisection.trials:
        return ()
    return (f"cause not searched for: {run.bisection.left_out}",)


def hang_step(run: Run, error: RunError) -> str | None:
    """What to do about a hang whose reason the kernel gives away; None for others."""
    named = [rank for rank in run.hang.ranks if rank.named] if run.hang is not None else []
    if error.kind not in ("stalled", "absent") or not named:
        return None
    steps = {
        "T": "find out who stopped it: a scheduler that suspends jobs, a checkpoint tool, a shell",
        "t": "find out whose debugger or tracer that was",
        "D": "see `dmesg` for what it waits in; a driver that does not come back needs a reset or a reboot",
    }
    return steps.get(named[0].state or "")


def check_bisection(run: Run, facts: Facts) -> list[Finding]:
    """What fresh processes showed. A failure that repeats is the node's, one that does not is the hung run's own."""
    found = run.bisection
    if found is None or not found.trials:
        return []
    evidence = tuple(_trial_line(run, trial) for trial in found.trials)
    evidence += (found.left_out,) if found.left_out else ()
    if found.repeated is None:
        return [Finding("hang_cause", State.INFO, "the search for the cause came to no end", evidence=evidence)]
    if not found.repeated or found.smallest is None:
        return [Finding("hang_cause", State.INFO, _own_words(run), evidence=evidence)]
    cure = CURES.get(found.cures[0]) if found.cures else None
    return [
        Finding(
            "hang_cause",
            State.FAIL,
            _cause_words(run, found, found.smallest),
            subject="; ".join(device_label(device) for device in _devices(run, found.smallest)),
            expected="a small all-reduce works",
            evidence=evidence,
            next_step=cure.step if cure else "run it with NCCL_DEBUG=INFO, and look at `dmesg`",
        )
    ]


def _own_words(run: Run) -> str:
    first = next((error for error in run.errors if error.first_cause), None)
    whose = f"rank {first.rank}'s own" if first is not None and first.rank is not None else "that run's own"
    return f"not repeated in fresh processes, where all-reduce works: the failure was {whose}"


def _cause_words(run: Run, found: Bisection, smallest: Sequence[int]) -> str:
    as_is = next(t for t in found.trials if t.ranks == list(smallest) and t.switch is None)
    does = {"fails": "fails", "wrong": "gives wrong sums"}.get(as_is.outcome, "hangs")
    what = f"all-reduce over {_members(run, smallest)} {does}"
    if not found.cures:
        tried = [trial.switch for trial in found.trials if trial.switch is not None]
        return f"{what} in fresh processes as well" + (f", and none of {', '.join(tried)} cures it" if tried else "")
    cure = found.cures[0]
    if cure not in CURES:
        return f"{what}, works with {cure}"
    name = cure.split("=")[0]
    chosen = run.node.environment.get(name)
    return f"{what}, works with {cure}: {CURES[cure].meaning.replace(name, f'{name}={chosen}' if chosen else name)}"


def _members(run: Run, ranks: Sequence[int]) -> str:
    devices = _devices(run, ranks)
    if run.plan.backend == "gloo":
        names, kind = [str(rank) for rank in ranks], "ranks"
    else:
        names, kind = [str(d.cuda_ordinal if d.nvml_index is None else d.nvml_index) for d in devices], "GPUs"
    return f"{kind} {', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else f"{kind} {names[0]}"


def _devices(run: Run, ranks: Sequence[int]) -> list[Device]:
    attempt = next((error.attempt for error in run.errors if error.first_cause), 0)
    sat_on = {info.rank: info.device for info in run.ranks if info.attempt == attempt}
    return [run.plan.devices[sat_on.get(rank, rank)] for rank in ranks]


def _trial_line(run: Run, trial: BisectTrial) -> str:
    does = {"works": "works", "hangs": "hangs", "fails": "fails", "wrong": "gives wrong sums"}
    why = f" ({trial.message})" if trial.message and trial.outcome == "fails" else ""
    outcome = does.get(trial.outcome, "not finished")
    return f"{_members(run, trial.ranks)}, {trial.switch or 'as is'}: {outcome}{why}, {trial.seconds:.0f} s"

"""Gathers what can be known of a hang while the ranks still live. Bounded in time, whatever does not answer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubalance.launch.nccl_traces import find_dumps, nccl_warnings, recorder_is_on, trigger_dumps
from gpubalance.launch.process_state import ProcessState, read_state
from gpubalance.launch.rank_state import RankState
from gpubalance.launch.ras import ask_ras, listening_addresses, wanted_port
from gpubalance.launch.stacks import ask, await_answers, main_thread_at
from gpubalance.record.hang import HangReport, RankHang, is_halted
from gpubalance.record.job import Job

POLL_S = 0.1
LIMIT_S = 3.0
"""For everything: a hang is named within 5 s of its deadline."""

RAS_SHARE = 0.8
LONGEST_LINE = 300


@dataclass(frozen=True)
class Witness:
    """One rank, and what the kernel says of its process."""

    rank: RankState
    pid: int | None
    process: ProcessState


def gather_hang(
    job: Job, states: Sequence[RankState], environment: Mapping[str, str], deadline_s: float, began_s: float
) -> HangReport:
    """Everything about the crew's ranks, none named yet. `environment` is what they were started with beside the job's,
    `began_s` the monotonic time of their start; the report's own `t_s` is on that clock.

    Takes at most LIMIT_S, and 0.2 s when all ranks answer.
    """
    environment = {**environment, **job.environment}
    now = time.monotonic()
    until_s = now + LIMIT_S
    witnesses = [_witness(state) for state in states]
    answering = {w.rank.rank: w.pid for w in witnesses if w.pid is not None and w.process.answers and not _halted(w)}
    asked = ask(answering)
    triggered = recorder_is_on(environment) and trigger_dumps(len(states), environment)
    ras, ras_missing = _ras(job, witnesses, environment, now + RAS_SHARE * LIMIT_S)
    stacks = await_answers({rank: job.stack_path(rank) for rank in asked}, until_s)
    started = time.time() - (time.monotonic() - began_s)
    dumps = find_dumps(len(states), environment, started) if recorder_is_on(environment) else []
    while triggered and not dumps and time.monotonic() < until_s:
        time.sleep(POLL_S)
        dumps = find_dumps(len(states), environment, started)
    return HangReport(
        attempt=job.attempt,
        crew="node" if job.crew == "node" else "ranks",
        t_s=now,
        deadline_s=deadline_s,
        gathered_in_s=round(time.monotonic() - now, 3),
        ranks=[_rank(job, w, stacks.get(w.rank.rank), environment) for w in witnesses],
        ras=ras,
        ras_missing=ras_missing,
        flight_recorder=dumps,
    )


def _witness(state: RankState) -> Witness:
    hello = next((event for event in state.events if event["event"] == "hello"), None)
    pid = int(hello["pid"]) if hello is not None else None
    if pid is None:
        return Witness(state, None, ProcessState(None, "it never said hello"))
    if state.exit_code is not None:
        return Witness(state, pid, ProcessState(None, f"it ended with {state.exit_code}"))
    return Witness(state, pid, read_state(pid))


def _halted(witness: Witness) -> bool:
    return witness.process.letter in ("T", "t")


def _ras(
    job: Job, witnesses: Sequence[Witness], environment: Mapping[str, str], until_s: float
) -> tuple[str | None, str | None]:
    if job.backend != "nccl":
        return None, "ranks talk over gloo, which has none"
    if environment.get("NCCL_RAS_ENABLE") == "0":
        return None, "NCCL_RAS_ENABLE=0 turns it off"
    pids = [w.pid for w in witnesses if w.pid is not None and w.rank.exit_code is None]
    return ask_ras(listening_addresses(pids, wanted_port(environment)), until_s)


def _rank(job: Job, witness: Witness, stack: str | None, environment: Mapping[str, str]) -> RankHang:
    state, process = witness.rank, witness.process
    hang = RankHang(
        rank=state.rank,
        pid=witness.pid,
        phase=state.phase,
        fence=state.fence,
        collective=state.collectives.get(state.fence),
        state=process.letter,
        state_missing=process.missing,
        stopped_by=process.stopped_by,
        traced_by=process.traced_by,
        waits_in=process.waits_in,
        stack=stack,
        python_at=main_thread_at(stack) if stack else None,
        last_line=json.dumps(state.events[-1])[:LONGEST_LINE] if state.events else None,
        warnings=nccl_warnings(job.output_path(state.rank), witness.pid, environment),
    )
    return hang.model_copy(update={"stack_missing": None if stack else _why_no_stack(hang, answers=process.answers)})


def _why_no_stack(rank: RankHang, *, answers: bool) -> str:
    if rank.state is None:
        return f"its process could not be asked: {rank.state_missing}"
    if is_halted(rank):
        return "its process is stopped and answers nothing"
    return "its process did not answer" if answers else "its process had not begun to listen"

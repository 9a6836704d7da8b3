"""A rank without torch that does what a script says: stands in for `workloads.rank_main` wherever the parent's side is
tested or shown. The script is the file named by GPUBALANCE_SCRIPT, JSON by rank; "*" means every rank that has none:

    {"*": [["phase", "solo"], ["end"], ["phase", "ddp"], ["blocks", 24, 100.0], ["overlapped", 8, 120.0], ["end"]],
     "1": [["phase", "solo"], ["sleep"]]}

Steps: phase NAME / end / blocks COUNT COMPUTE_MS / overlapped COUNT STEP_MS / fences COUNT / sleep (for ever) /
raise TEXT / fail_collective TEXT / out_of_memory TEXT / kill SIGNAL / exit CODE / print TEXT / wait PATH (until that
file exists) / wait_for FILE TEXT COUNT (until that file of the log folder holds the text so often) / wait_more FILE
TEXT COUNT (until it holds it so many times more than now) / touch PATH / event NAME VALUES.

A key `ranks-1` holds a script for the crew of the second look, `touch NCCL_P2P_DISABLE=1` (or `touch as is`, or
`touch 0,2 as is`) one for a trial after a hang with that switch (as it is, on those devices).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpubalance.child import answer_with_stacks, die_with_parent, wait_for_turn
from gpubalance.record.job import JOB_VARIABLE, PARENT_VARIABLE, Job
from gpubalance.record.rank_log import RankLog

SCRIPT_VARIABLE = "GPUBALANCE_SCRIPT"
STEPS_PER_BLOCK = 20
FENCE_MS = 0.01


class ScriptedRank:
    """Carries out one rank's steps and writes what a real rank would write."""

    def __init__(self, job: Job, rank: int, slowest_ms: float = 0.0) -> None:
        """All ranks leave a step together: whoever computes for less than `slowest_ms` waits for the rest of it."""
        self._slowest_ms = slowest_ms
        self._job = job
        self._rank = rank
        self._log = RankLog(job.log_path(rank))
        self._fences = 0

    def play(self, steps: list[list[Any]]) -> None:
        """Carry out all steps, then say bye."""
        slot = self._job.slots[self._rank]
        self._log.write("hello", pid=os.getpid())
        wait_for_turn()
        self._log.write("device", slot=slot.device, name="scripted", uuid=slot.uuid, versions={"torch": "none"})
        for name, *values in steps:
            action: Callable[..., None] = getattr(self, f"do_{name}")
            action(*values)
        self._log.write("bye")

    def do_phase(self, name: str) -> None:
        """Begin a phase."""
        self._log.begin(name)

    def do_end(self) -> None:
        """End the phase."""
        self._log.end()

    def do_fences(self, count: int) -> None:
        """Enter so many collectives."""
        for _ in range(count):
            self._fences += 1
            self._log.entering(self._fences, "all_reduce")

    def do_blocks(self, count: int, compute_ms: float) -> None:
        """Write fenced blocks with this compute time in every step."""
        self._log.write("warm_up", blocks=4, steps=40, settled=True, last_medians_ms=[compute_ms] * 4)
        self._log.write("steady", steps_per_block=STEPS_PER_BLOCK + 2, step_ms=compute_ms, samples=8, units=1.0)
        for _ in range(count):
            self.do_fences(2)
            self._log.write(
                "block",
                begin=time.monotonic(),
                compute_ms=[compute_ms] * STEPS_PER_BLOCK,
                fence_ms=[max(0.0, self._slowest_ms - compute_ms) + FENCE_MS] * STEPS_PER_BLOCK,
                transfer_ms=[20.0] * STEPS_PER_BLOCK,
            )

    def do_overlapped(self, count: int, step_ms: float) -> None:
        """Write overlapped blocks and the end of the ddp phase."""
        for _ in range(count):
            self._log.write("overlapped", step_ms=step_ms)
        self._log.write("ddp_end", loss=1.0)

    def do_event(self, name: str, values: dict[str, Any]) -> None:
        """Write any line."""
        self._log.write(name, **values)

    def do_sleep(self) -> None:
        """Never come back."""
        while True:
            signal.pause()

    def do_wait(self, path: str) -> None:
        """Go on when the file exists."""
        while not Path(path).exists():
            time.sleep(0.01)

    def do_wait_for(self, name: str, text: str, count: int) -> None:
        """Go on when a file of the log folder holds the text so often."""
        path = Path(self._job.log_folder) / name
        while not path.exists() or path.read_bytes().count(text.encode()) < count:
            time.sleep(0.01)

    def do_wait_more(self, name: str, text: str, count: int) -> None:
        """Go on when a file of the log folder holds the text so many times more than now."""
        path = Path(self._job.log_folder) / name
        now = path.read_bytes().count(text.encode()) if path.exists() else 0
        self.do_wait_for(name, text, now + count)

    def do_touch(self, path: str) -> None:
        """Make the file."""
        Path(path).touch()

    def do_raise(self, text: str) -> None:
        """Fail in own work."""
        self._fail("exception", "work", f"RuntimeError: {text}")

    def do_fail_collective(self, text: str) -> None:
        """Fail as the victim of somebody else."""
        self._fail("exception", "collective", f"RuntimeError: {text}")

    def do_out_of_memory(self, text: str) -> None:
        """Fail for lack of memory."""
        self._fail("out_of_memory", "work", f"OutOfMemoryError: {text}")

    def _fail(self, kind: str, where: str, message: str) -> None:
        self._log.write("error", kind=kind, where=where, phase=self._log.phase, message=message, detail="traceback")
        sys.exit(1)

    def do_kill(self, number: int) -> None:
        """Die by a signal."""
        os.kill(os.getpid(), number)
        signal.pause()

    def do_exit(self, code: int) -> None:
        """Leave without a word."""
        sys.exit(code)

    def do_print(self, text: str) -> None:
        """Print on stdout, as NCCL does with its log."""
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _slowest_ms(scripts: list[list[list[Any]]]) -> float:
    """The longest compute time of any rank's blocks."""
    return max((values[1] for steps in scripts for name, *values in steps if name == "blocks"), default=0.0)


def script_keys(job: Job) -> list[str]:
    """Keys under which a script may hold scripts for one crew alone, the most special first."""
    keys = [f"{job.crew}-{job.attempt}"]
    if job.phases == ("touch",):
        how = ",".join(f"{name}={value}" for name, value in job.environment.items()) or "as is"
        devices = ",".join(str(slot.device) for slot in job.slots)
        keys += [f"touch {devices} {how}", f"touch {how}", "touch"]
    return keys


def main() -> None:
    """Play the script of this rank."""
    die_with_parent(int(os.environ[PARENT_VARIABLE]))
    job = Job.load(Path(os.environ[JOB_VARIABLE]))
    rank = int(os.environ["RANK"])
    os.environ.update(job.environment)
    answer_with_stacks(job.stack_path(rank))
    scripts = json.loads(Path(os.environ[SCRIPT_VARIABLE]).read_text())
    by_crew = next((scripts[key] for key in script_keys(job) if key in scripts), scripts)
    steps = [by_crew.get(str(each), by_crew.get("*", [])) for each in range(len(job.slots))]
    ScriptedRank(job, rank, _slowest_ms(steps)).play(steps[rank])


if __name__ == "__main__":
    main()

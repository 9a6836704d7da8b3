"""One crew from start to end, with ranks that follow a script and a sensor that only listens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpubalance.errors import Interrupted
from gpubalance.launch.launcher_env import Share
from gpubalance.launch.start import child_environment, end_ranks, job_path, start_ranks
from gpubalance.record.rank_log import LogTail
from gpubalance.session import crew
from gpubalance.session.assemble import Gathered
from gpubalance.session.crew import CrewRunner
from gpubalance.session.display import Display, Silent
from gpubalance.session.share import Orders, orders_path
from tests.support import HEALTHY, SCRIPTED, alive, eventually, make_job, write_script


class Listening:
    """A sensor that notes what it is told."""

    def __init__(self) -> None:
        self.edges: list[str] = []
        self.pids: dict[int, int] = {}
        self.hung_in: str | None = None

    def is_hung(self) -> bool:
        return self.hung_in is not None

    def edge(self, name: str) -> None:
        self.edges.append(name)

    def set_ranks(self, pids: Mapping[int, int]) -> None:
        self.pids.update(pids)


class Noting(Silent):
    """A display that notes what it is shown."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def phase(self, name: str, attempt: int) -> None:
        self.shown.append((name, attempt))

    def advance(self, blocks: int) -> None:
        self.shown.append(blocks)


Runner = Callable[..., CrewRunner]


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """A runner whose ranks follow this script."""
    monkeypatch.setattr("gpubalance.launch.follow.GRACE_S", 0.5)

    def make(script: dict[str, Any], display: Display | None = None, share: Share | None = None) -> CrewRunner:
        whose = share or Share("own")
        sensor: Any = Listening()
        return CrewRunner(
            share=whose,
            environment=child_environment({**os.environ, **write_script(tmp_path, script)}, ()),
            module=SCRIPTED,
            sensor=sensor,
            orders=Orders(tmp_path, whose),
            display=display or Noting(),
            stall_s=20.0,
            gathered=Gathered(datetime.now(timezone.utc), time.monotonic()),
        )

    return make


def listened(runner: CrewRunner) -> Listening:
    assert isinstance(runner.sensor, Listening)
    return runner.sensor


def left_behind(runner: CrewRunner) -> list[int]:
    """Ranks that are still running."""
    found = []
    for pid in runner.gathered.pids:
        try:
            found.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    return alive(found)


def test_a_crew_that_does_its_work_is_kept_and_gone(runner: Runner, tmp_path: Path) -> None:
    crew_runner = runner({"*": HEALTHY})
    crew_runner.run(make_job(tmp_path))
    gathered = crew_runner.gathered
    assert gathered.errors == []
    assert gathered.ddp is not None
    assert [len(rank.fenced) for rank in gathered.ddp.ranks] == [24, 24]
    assert sorted(gathered.pids.values()) == [0, 1]
    assert listened(crew_runner).pids == {rank: pid for pid, rank in gathered.pids.items()}
    assert left_behind(crew_runner) == []


def test_counters_are_read_once_at_each_edge_of_a_phase(runner: Runner, tmp_path: Path) -> None:
    crew_runner = runner({"*": HEALTHY})
    crew_runner.run(make_job(tmp_path))
    assert sorted(listened(crew_runner).edges) == ["ddp begin", "ddp end", "solo begin", "solo end"]
    assert listened(crew_runner).edges[0] == "solo begin"


def test_phases_are_shown_once_and_the_blocks_of_rank_0_are_counted_from_one_in_each(
    runner: Runner, tmp_path: Path
) -> None:
    script = {
        "0": [["phase", "ddp"], ["blocks", 2, 100.0], ["overlapped", 1, 120.0], ["end"]],
        "1": [["phase", "ddp"], ["blocks", 3, 100.0], ["overlapped", 1, 120.0], ["end"]],
    }
    display = Noting()
    crew_runner = runner(script, display)
    crew_runner.run(make_job(tmp_path))
    assert display.shown == [("ddp", 0), 1, 2, 3]
    crew_runner.run(make_job(tmp_path, attempt=1))
    assert display.shown[4:] == [("ddp", 1), 1, 2, 3]


def test_times_of_errors_are_on_the_clock_of_the_run(runner: Runner, tmp_path: Path) -> None:
    crew_runner = runner({"*": HEALTHY, "1": [["phase", "ddp"], ["raise", "bad kernel"]]})
    crew_runner.gathered.start_s -= 100.0
    crew_runner.run(make_job(tmp_path))
    (first, *_) = crew_runner.gathered.errors
    assert first.message == "RuntimeError: bad kernel"
    assert first.t_s is not None
    assert 100.0 <= first.t_s < 200.0


def test_a_signal_keeps_what_was_measured_and_leaves_nobody_behind(runner: Runner, tmp_path: Path) -> None:
    class Pressed(Noting):
        """Ctrl-C at the third block."""

        def advance(self, blocks: int) -> None:
            if blocks == 3:
                raise Interrupted(2)

    waiting = [["phase", "ddp"], ["blocks", 3, 100.0], ["touch", str(tmp_path / "there")], ["sleep"]]
    leading = [["wait", str(tmp_path / "there")], *waiting]
    crew_runner = runner({"0": leading, "1": waiting}, Pressed())
    with pytest.raises(Interrupted):
        crew_runner.run(make_job(tmp_path))
    attempt = crew_runner.gathered.ddp
    assert attempt is not None
    assert not attempt.complete
    assert [len(rank.fenced) for rank in attempt.ranks] == [3, 3]
    assert crew_runner.gathered.errors == []
    assert len(crew_runner.gathered.pids) == 2
    assert left_behind(crew_runner) == []


def test_a_process_that_cannot_be_killed_is_reported_by_its_pid(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(processes: Any) -> list[int]:
        assert end_ranks(processes) == []
        return [4711]

    monkeypatch.setattr(crew, "end_ranks", stuck)
    crew_runner = runner({"*": HEALTHY})
    crew_runner.run(make_job(tmp_path))
    (error,) = crew_runner.gathered.errors
    assert (error.kind, error.where) == ("stuck", "launch")
    assert error.message == "pid 4711 sits in the kernel and cannot be killed"


def test_the_process_that_sees_all_devices_is_one(runner: Runner, tmp_path: Path) -> None:
    crew_runner = runner({"*": [["phase", "data_parallel"], ["end"]]})
    crew_runner.run(make_job(tmp_path, 4, crew="node"))
    assert list(crew_runner.gathered.pids.values()) == [0]
    assert crew_runner.gathered.errors == []


def test_under_a_launcher_only_rank_0_is_started_here_and_the_others_are_told(runner: Runner, tmp_path: Path) -> None:
    crew_runner = runner({"*": HEALTHY}, share=Share("torchrun", 0, 2, "job-29500-0"))
    job = make_job(tmp_path)
    job.save(job_path(job))  # rank 1 may be faster than rank 0's parent
    others = start_ranks(job, [1], crew_runner.environment, SCRIPTED, own_store=False)
    try:
        crew_runner.run(job)
    finally:
        end_ranks(others)
    assert crew_runner.gathered.errors == []
    assert sorted(crew_runner.gathered.pids.values()) == [0, 1]
    assert [order["event"] for order in LogTail(orders_path(tmp_path)).read()] == ["crew", "stop"]


def test_a_held_process_is_ready_but_does_nothing_before_its_turn(runner: Runner, tmp_path: Path) -> None:
    crew_runner = runner({"*": [["phase", "data_parallel"], ["end"]]})
    node = make_job(tmp_path, crew="node", phases=("data_parallel",))
    crew_runner.hold(node)
    log = LogTail(node.log_path(0))
    first = eventually(log.read)
    assert [event["event"] for event in first] == ["hello"]
    held = psutil.Process(first[0]["pid"])
    eventually(lambda: held.status() == psutil.STATUS_SLEEPING)
    assert log.read() == []
    crew_runner.run(node)
    assert crew_runner.gathered.errors == []
    assert crew_runner.gathered.pids == {held.pid: 0}
    assert [event["event"] for event in log.read()][-1] == "bye"
    assert alive([held]) == []


def test_a_held_process_whose_turn_never_comes_is_ended(runner: Runner, tmp_path: Path) -> None:
    crew_runner = runner({"*": [["phase", "data_parallel"], ["end"]]})
    node = make_job(tmp_path, crew="node", phases=("data_parallel",))
    crew_runner.hold(node)
    first = eventually(LogTail(node.log_path(0)).read)
    held = psutil.Process(first[0]["pid"])
    crew_runner.end()
    assert alive([held]) == []


class Saying(Noting):
    """A display that notes what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


HANGING = {
    "*": [["phase", "ddp"], ["fences", 3], ["sleep"]],
    "1": [["phase", "ddp"], ["fences", 2], ["sleep"]],
    "touch": {"*": [["phase", "touch"], ["end"]]},
}


def test_a_hang_is_kept_said_at_once_and_searched_into(runner: Runner, tmp_path: Path) -> None:
    display = Saying()
    crew_runner = runner(HANGING, display)
    crew_runner.stall_s, crew_runner.bisect = 0.5, "auto"
    listened(crew_runner).hung_in = "nvmlDeviceGetPowerUsage on 1"
    crew_runner.gathered.start_s -= 100.0
    crew_runner.run(make_job(tmp_path))
    hang, found = crew_runner.gathered.hang, crew_runner.gathered.bisection
    assert hang is not None
    assert 100.0 < hang.t_s < 200.0
    assert hang.driver_silent == "nvmlDeviceGetPowerUsage on 1"
    assert [rank.named for rank in hang.ranks] == [False, True]
    assert found is not None
    assert (found.repeated, found.left_out) == (False, None)
    assert display.said[0].startswith(
        "rank 1 did not enter all_reduce 3 of ddp: its process sleeps (state S), in do_sleep"
    )
    assert display.said[1].startswith("searching for the cause in fresh processes")
    assert len(crew_runner.gathered.pids) == 4
    assert left_behind(crew_runner) == []


def test_no_search_where_none_is_wanted_and_the_reason_is_kept(runner: Runner, tmp_path: Path) -> None:
    crew_runner = runner(HANGING)
    crew_runner.stall_s = 0.5
    crew_runner.run(make_job(tmp_path))
    assert crew_runner.gathered.bisection is not None
    assert crew_runner.gathered.bisection.left_out == "--bisect never was given"
    assert crew_runner.gathered.bisection.trials == []


def test_no_search_on_devices_that_a_stuck_process_still_holds(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(processes: Any) -> list[int]:
        assert end_ranks(processes) == []
        return [4711]

    monkeypatch.setattr(crew, "end_ranks", stuck)
    crew_runner = runner(HANGING)
    crew_runner.stall_s, crew_runner.bisect = 0.5, "auto"
    crew_runner.run(make_job(tmp_path))
    assert crew_runner.gathered.bisection is not None
    assert crew_runner.gathered.bisection.left_out == "a process could not be killed and still holds its device"


def test_a_hang_of_the_process_that_sees_all_devices_is_described_by_its_stack(runner: Runner, tmp_path: Path) -> None:
    crew_runner = runner({"*": [["phase", "data_parallel"], ["sleep"]]})
    crew_runner.stall_s, crew_runner.bisect = 0.5, "auto"
    crew_runner.run(make_job(tmp_path, 4, crew="node"))
    (error,) = crew_runner.gathered.errors
    assert error.rank is None
    assert error.message.startswith(
        "the process that sees all devices made no progress for 0.5 s in data_parallel: "
        "its process sleeps (state S), in do_sleep (testing/scripted_rank.py:"
    )
    assert crew_runner.gathered.hang is not None
    (witness,) = crew_runner.gathered.hang.ranks
    assert (witness.rank, witness.named) == (0, True)
    assert '"phase": "data_parallel"' in (witness.last_line or "")
    assert crew_runner.gathered.bisection is not None
    assert crew_runner.gathered.bisection.left_out == "one process alone waits for no other rank"


def test_a_rank_that_died_is_no_reason_to_search(runner: Runner, tmp_path: Path) -> None:
    crew_runner = runner({**HANGING, "1": [["phase", "ddp"], ["fences", 2], ["kill", 9]]})
    crew_runner.bisect = "auto"
    crew_runner.run(make_job(tmp_path))
    assert crew_runner.gathered.errors[0].kind == "killed"
    assert (crew_runner.gathered.hang, crew_runner.gathered.bisection) == (None, None)

"""The child's side of an inspection: what it logs and in which order, and how a stack tells the call."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubalance.node.details import read_links, read_peers, read_values
from gpubalance.node.nvml import Nvml
from gpubalance.record.rank_log import LogTail, RankLog
from gpubalance.sampling.inspector import hung_call, inspect, log_path, stack_path
from gpubalance.testing.profiles import h200_node, profile
from gpubalance.testing.stand_in_nvml import StandIn

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]

STACK = """Timeout (0:00:05)!
Thread 0x00007f9d5b7fe740 (most recent call first):
  File "/venv/pynvml.py", line 5012 in nvmlDeviceGetVbiosVersion
  File "/venv/pynvml.py", line 1160 in wrapper
  File "/gpubalance/node/nvml.py", line 85 in _ask
  File "/gpubalance/node/details.py", line 91 in _special
"""


def test_a_stack_names_the_innermost_call() -> None:
    outer = '  File "/venv/pynvml.py", line 9 in nvmlDeviceGetMemoryInfo\n'
    assert hung_call(STACK) == "nvmlDeviceGetVbiosVersion"
    assert hung_call(STACK + outer) == "nvmlDeviceGetVbiosVersion"


@pytest.mark.parametrize("length", range(len(STACK)))
def test_a_stack_that_is_still_being_written_names_the_call_or_none(length: int) -> None:
    assert hung_call(STACK[:length]) in (None, "nvmlDeviceGetVbiosVersion")


@pytest.mark.parametrize("stack", ["", "Timeout (0:00:05)!\n", '  File "x.py", line 1 in _nvmlGetFunctionPointer\n'])
def test_a_stack_without_a_call_names_none(stack: str) -> None:
    assert hung_call(stack) is None


def test_a_real_stack_names_the_call_that_is_on_it(tmp_path: Path) -> None:
    path = tmp_path / "stack"

    def nvmlDeviceGetSomething() -> None:  # noqa: N802
        with path.open("w") as file:
            faulthandler.dump_traceback(file)

    nvmlDeviceGetSomething()
    assert hung_call(path.read_text()) == "nvmlDeviceGetSomething"


def test_each_gpu_has_files_of_its_own(tmp_path: Path) -> None:
    paths = {name(tmp_path, index) for name in (log_path, stack_path) for index in range(8)}
    assert len(paths) == 16


@pytest.mark.parametrize(("name", "count"), [("h200x2", 2), ("geforce4090x2", 2), ("gb10", 1), ("no_rights", 2)])
def test_every_part_is_logged_as_it_was_read(opened: Opened, tmp_path: Path, name: str, count: int) -> None:
    nvml, _ = opened(profile(name))
    watched: list[int] = []
    path = tmp_path / "log"
    inspect(nvml, 0, count, RankLog(path), lambda: watched.append(len(LogTail(path).read())))
    values, links, peers = LogTail(path).read()
    assert (values["event"], links["event"], peers["event"]) == ("values", "links", "peers")
    again, _ = opened(profile(name))
    assert (values["values"], values["missing"]) == read_values(again, 0)
    assert (links["links"], links["missing"]) == read_links(again, 0)
    assert peers["peers"] == read_peers(again, 0, count)
    assert watched == [0, 1, 2]


def test_no_energy_counter_is_read_twice_in_one_inspection(opened: Opened, tmp_path: Path) -> None:
    nvml, stand_in = opened(h200_node())
    inspect(nvml, 1, 2, RankLog(tmp_path / "log"), lambda: None)
    assert stand_in.calls["nvmlDeviceGetTotalEnergyConsumption", 1] == 1
    assert {device for _, device in stand_in.calls} == {None, 1}

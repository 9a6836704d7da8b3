"""The real binding over a stand-in library, here or in a real sensor process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpubalance.launch.start import child_environment
from gpubalance.node.nvml import Nvml, open_nvml
from gpubalance.sampling.client import SensorProcess
from gpubalance.testing.stand_in_nvml import StandIn, installed


@pytest.fixture
def opened() -> Iterator[Callable[[dict[str, Any]], tuple[Nvml, StandIn]]]:
    """Open NVML over a profile; afterwards the binding is as it was."""
    with ExitStack() as stack:

        def open_over(profile: dict[str, Any]) -> tuple[Nvml, StandIn]:
            stand_in = stack.enter_context(installed(profile))
            nvml = open_nvml()
            assert isinstance(nvml, Nvml)
            return nvml, stand_in

        yield open_over


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., SensorProcess]]:
    """Start a sensor over a profile; none is left behind."""
    sensors: list[SensorProcess] = []

    def start_over(profile: dict[str, Any], interval_s: float = 0.05) -> SensorProcess:
        path = tmp_path / "profile.json"
        path.write_text(json.dumps(profile))
        inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        sensors.append(SensorProcess(tmp_path, interval_s, child_environment(inherited, ()), path))
        return sensors[-1]

    yield start_over
    for sensor in sensors:
        sensor.process.kill()
        sensor.process.wait()
        assert sensor.process.stdin is not None
        sensor.process.stdin.close()

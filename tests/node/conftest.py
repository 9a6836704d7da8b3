"""The real binding over a stand-in library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from gpubalance.node.nvml import Nvml, open_nvml
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

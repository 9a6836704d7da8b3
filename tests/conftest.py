"""Settings that all tests share."""

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import settings

from gpubalance.launch import lock
from tests import turns
from tests.command import LOCK_VARIABLE
from tests.turns import turn

# The same examples each time, so that a failure is a change and not luck; no deadline on shared machines.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

MOST_WORKERS = 4


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker a core for the suite as it stands; what somebody chooses from it runs in one process."""
    addopts = config.getini("addopts")
    as_it_stands = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if not as_it_stands or config.option.collectonly or config.option.markexpr != addopts[addopts.index("-m") + 1]:
        return 0
    return min(len(os.sched_getaffinity(0)), MOST_WORKERS)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that times real ranks has the machine for itself, beginning with its fixtures."""
    if not hasattr(item.config, "workerinput"):  # no worker; nor is a pytest that a test of a worker starts
        return (yield)
    with turn(Path(turns.__file__), Path(__file__), alone=item.get_closest_marker("ranks") is not None):
        return (yield)


@pytest.fixture(autouse=True, scope="session")
def state_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Runs, verdicts and baselines of tests never mix with those of whoever runs them."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True, scope="session")
def a_lock_of_their_own() -> Iterator[None]:
    """Here and in the commands that tests start nobody else measures, whatever runs on the machine besides."""
    name = f"gpubalance-tests-{uuid4().hex}"  # a pid is not enough: containers can share a network
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "_NAME", f"\0{name}")
        patch.setenv(LOCK_VARIABLE, name)
        yield


@pytest.fixture(autouse=True, scope="session")
def signals_as_usual() -> None:
    """Under nohup, or behind an & in a script, some are ignored, and children would inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)

"""Every command that measures is refused while somebody else measures; looking is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpubalance.launch import lock
from tests.support import command_environment, run_cli


@pytest.fixture
def somebody_measures() -> Iterator[None]:
    held = lock.MeasuringLock()
    held.acquire(force=False)
    yield
    held.release()


@pytest.mark.usefixtures("somebody_measures")
@pytest.mark.parametrize("command", [("bench", "--device", "cpu"), ("probe", "--load")])
def test_what_measures_is_refused(command: tuple[str, ...]) -> None:
    environment = command_environment()
    del environment["GPUBALANCE_BENCH_FORCE"]
    done = run_cli(*command, env=environment)
    assert done.returncode == 3
    assert "is measuring here; two at once would disturb each other" in done.stderr
    assert "wait for it, or give --force" in done.stderr


@pytest.mark.usefixtures("somebody_measures")
def test_what_only_looks_is_not_refused() -> None:
    done = run_cli("probe", "--simulate", "h200x2")
    assert "is measuring here" not in done.stderr
    assert "checks:" in done.stdout

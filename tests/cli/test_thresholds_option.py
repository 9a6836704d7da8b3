"""`--threshold`: flags, variables and files, together and alone, and where the record says that they came from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubalance.cli import bench_run, entry, probe_run, selftest_run

Started = Callable[..., Any]

FILE = """
[thresholds]
limit_warn = 70
level_warn = 20
open_files_warn = 1024
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    """The settings with which a command would run, beside a file of settings."""
    taken: list[Any] = []

    def take(settings: Any, **_: Any) -> int:
        taken.append(settings)
        return 0

    monkeypatch.setattr(bench_run, "run_bench", take)
    monkeypatch.setattr(probe_run, "run_probe", take)
    monkeypatch.setattr(selftest_run, "run_selftest", take)
    for command in ("BENCH", "PROBE", "SELFTEST"):
        monkeypatch.delenv(f"GPUBALANCE_{command}_THRESHOLD", raising=False)

    def start(*arguments: str, text: str | None = None) -> tuple[tuple[str, ...], str | None]:
        path = tmp_path / "node.toml"
        path.write_text(text or "")
        assert entry.run([*(["--config", str(path)] if text else []), *arguments]) == 0
        settings = taken.pop()
        origin = settings.origins.get("thresholds")
        return settings.thresholds, origin and origin.replace(str(path), "node.toml")

    return start


@pytest.mark.parametrize("command", ["bench", "probe", "selftest"])
def test_nothing_is_asked_for_by_default(started: Started, command: str) -> None:
    assert started(command) == ((), None)


@pytest.mark.parametrize("command", ["bench", "probe"])
def test_flags_are_collected(started: Started, command: str) -> None:
    flags = ("--threshold", "limit_warn=70", "--threshold", "limit-fail=60")
    assert started(command, *flags) == (("limit_warn=70", "limit_fail=60"), "flag")


def test_a_file_gives_each_command_what_it_knows(started: Started) -> None:
    assert started("bench", text=FILE) == (("level_warn=20", "limit_warn=70"), "file:node.toml")
    assert started("probe", text=FILE) == (("limit_warn=70", "open_files_warn=1024"), "file:node.toml")
    assert started("selftest", text=FILE) == ((), None)
    text = f"{FILE}transient_warn = 2\n"
    assert started("selftest", text=text) == (("transient_warn=2",), "file:node.toml")
    both = (("transient_warn=2", "memory_full_fail=60"), "file:node.toml, flag")
    assert started("selftest", "--threshold", "memory_full_fail=60", text=text) == both


def test_a_flag_goes_over_the_file_name_by_name(started: Started) -> None:
    asked = started("bench", "--threshold", "limit_warn=80", text=FILE)
    assert asked == (("level_warn=20", "limit_warn=80"), "file:node.toml, flag")


def test_a_variable_does_so_too(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBALANCE_PROBE_THRESHOLD", "limit_warn=80 busy_warn=9")
    asked = started("probe", text=FILE)
    assert asked == (
        ("limit_warn=80", "open_files_warn=1024", "busy_warn=9"),
        "file:node.toml, GPUBALANCE_PROBE_THRESHOLD",
    )


def test_a_file_with_nothing_for_the_command_is_no_origin(started: Started) -> None:
    text = "[thresholds]\nopen_files_warn = 1024"
    assert started("bench", text=text) == ((), None)
    assert started("bench", "--threshold", "limit_warn=80", text=text) == (("limit_warn=80",), "flag")


def test_a_flag_may_be_in_order_only_beside_what_the_file_says(started: Started) -> None:
    text = "[thresholds]\nlimit_warn = 95"
    asked = started("bench", "--threshold", "limit_fail=90", text=text)
    assert asked == (("limit_warn=95", "limit_fail=90"), "file:node.toml, flag")


def test_both_together_must_be_in_order(started: Started, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError):
        started("bench", "--threshold", "limit_fail=75", text=FILE)
    assert "limit_warn (70) must be above limit_fail (75)" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["bench", "probe"])
def test_a_name_that_nobody_knows_is_wrong_use(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert entry.run([command, "--threshold", "limit_wran=5"]) == 2
    assert "did you mean limit_warn?" in capsys.readouterr().err

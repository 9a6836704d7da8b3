"""Where the value of each option came from: for every option there is, so that none can be forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import typer

from gpubalance.cli import bench_run, entry
from gpubalance.cli.app import app
from gpubalance.cli.origins import NAMES
from gpubalance.settings import BenchSettings, Fault, Margin

Started = Callable[..., BenchSettings]


NO_SETTINGS = {
    "help", "json", "config", "report", "exit_style", "on_no_verdict", "baseline", "require_baseline",
}  # fmt: skip
"""Options that steer what is read and shown, and not what is measured."""


def bench_options() -> dict[str, str]:
    """Parameter -> flag, of all options of `bench` that are settings."""
    group: Any = typer.main.get_command(app)
    parameters = group.commands["bench"].params
    return {parameter.name: parameter.opts[0] for parameter in parameters if parameter.name not in NO_SETTINGS}


EXAMPLES: dict[str, tuple[str, Any]] = {
    "nproc": ("3", 3),
    "devices": ("2,0", ("2", "0")),
    "device": ("cpu", "cpu"),
    "expect_gpus": ("4", 4),
    "workload": ("solo, ddp", ("solo", "ddp")),
    "model": ("transformer", "transformer"),
    "batch": ("96", 96),
    "budget": ("5m", 300.0),
    "margin": ("4:8", Margin(0.04, 0.08)),
    "threshold": ("limit_warn=70", ("limit_warn=70",)),
    "inject": ("sleep:rank=1,ms=5", (Fault("sleep", rank=1, ms=5.0),)),
    "sizes": ("1K:4K:x2", (1024, 2048, 4096)),
    "collectives": ("alltoall, reduce", ("all_to_all", "reduce")),
    "dtype": ("bfloat16", "bfloat16"),
    "nccl_tests_compat": ("1", True),
    "jitter": ("1", True),
    "out": ("run.json", "run.json"),
    "launcher": ("none", "none"),
    "stall_timeout": ("90s", 90.0),
    "bisect": ("never", "never"),
    "what_if": ("p2p", ("p2p",)),
    "sample_interval": ("0.5", 0.5),
    "seed": ("7", 7),
    "fail_on": ("warn", "warn"),
    "min_score": ("95", 95.0),
    "force": ("1", True),
}
"""Parameter -> a value that is not the default, as it is written, and as a setting."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Run `gpubalance bench` with these arguments up to where it would start, and return its settings."""
    taken: list[BenchSettings] = []

    def take(settings: BenchSettings, **_: Any) -> int:
        taken.append(settings)
        return 0

    monkeypatch.setattr(bench_run, "run_bench", take)
    for name in bench_options():
        monkeypatch.delenv(variable(name), raising=False)

    def start(*arguments: str) -> BenchSettings:
        assert entry.run(["bench", *arguments]) == 0
        return taken.pop()

    return start


def variable(name: str) -> str:
    return f"GPUBALANCE_BENCH_{name.upper()}"


def arguments(name: str, text: str) -> list[str]:
    flag = bench_options()[name]
    return [flag] if EXAMPLES[name][1] is True else [flag, text]


def value_of(settings: BenchSettings, name: str) -> Any:
    return getattr(settings, NAMES.get(name, name))


EVERY = pytest.mark.parametrize("name", sorted(bench_options()))


def test_every_option_is_tried_below() -> None:
    assert set(EXAMPLES) == set(bench_options())


def test_every_option_is_a_setting_and_every_setting_has_an_option() -> None:
    settings = {field.name for field in fields(BenchSettings)} - {"origins"}
    assert {NAMES.get(name, name) for name in bench_options()} == settings


@EVERY
def test_an_option_that_was_given_comes_from_its_flag(started: Started, name: str) -> None:
    text, value = EXAMPLES[name]
    settings = started(*arguments(name, text))
    assert value_of(settings, name) == value
    assert settings.origins == {NAMES.get(name, name): "flag"}


@EVERY
def test_an_option_of_the_environment_comes_from_its_variable(
    started: Started, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text, value = EXAMPLES[name]
    monkeypatch.setenv(variable(name), text)
    settings = started()
    assert value_of(settings, name) == value
    assert settings.origins == {NAMES.get(name, name): variable(name)}


@EVERY
def test_a_flag_counts_more_than_a_variable(started: Started, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    text, value = EXAMPLES[name]
    monkeypatch.setenv(variable(name), "0" if name == "force" else text)
    settings = started(*arguments(name, text))
    assert value_of(settings, name) == value
    assert settings.origins == {NAMES.get(name, name): "flag"}


@EVERY
def test_an_option_that_nobody_gave_has_its_default_and_no_origin(started: Started, name: str) -> None:
    settings = started()
    assert value_of(settings, name) == value_of(BenchSettings(), name)
    assert value_of(settings, name) != EXAMPLES[name][1]
    assert settings.origins == {}


@EVERY
def test_an_empty_variable_is_no_value(started: Started, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(variable(name), "")
    settings = started()
    assert value_of(settings, name) == value_of(BenchSettings(), name)
    assert settings.origins == {}


def test_faults_are_collected(started: Started) -> None:
    settings = started("--inject", "sleep:rank=1,ms=5", "--inject", "memory:rank=0,percent=35")
    assert [fault.kind for fault in settings.inject] == ["sleep", "memory"]


def test_json_is_no_setting_but_can_be_asked_for_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(bench_run, "run_bench", lambda settings, *, as_json, **_: asked.append(as_json) or 0)
    entry.run(["bench"])
    entry.run(["bench", "--json"])
    monkeypatch.setenv("GPUBALANCE_BENCH_JSON", "1")
    entry.run(["bench"])
    assert asked == [False, True, True]

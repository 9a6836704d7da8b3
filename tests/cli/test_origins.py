"""Where the value of each option came from: for every option there is, so that none can be forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

from gpubalance.cli import bench_run, entry, selftest_run
from gpubalance.cli.app import app
from gpubalance.cli.config_file import known_options
from gpubalance.cli.origins import NAMES
from gpubalance.config import Kind
from gpubalance.faults import Fault
from gpubalance.settings import BenchSettings, Margin, SelftestSettings

Settings = BenchSettings | SelftestSettings
Started = Callable[..., Settings]


NO_SETTINGS = {
    "help", "json", "config", "report", "exit_style", "on_no_verdict", "baseline", "require_baseline",
}  # fmt: skip
"""Options that steer what is read and shown, and not what is measured."""

BENCH: dict[str, tuple[str, Any]] = {
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
SELFTEST: dict[str, tuple[str, Any]] = {
    "quick": ("1", True),
    **{name: BENCH[name] for name in ("nproc", "devices", "device", "margin", "out", "stall_timeout", "seed", "force")},
    "threshold": ("transient_warn=2", ("transient_warn=2",)),
    "rows": ("compute, sleep", ("compute", "sleep")),
    "repeat": ("10", 10),
    "healthy": ("5", 5),
}
EXAMPLES: dict[str, dict[str, tuple[str, Any]]] = {"bench": BENCH, "selftest": SELFTEST}
"""Command -> parameter -> a value that is not the default, as it is written, and as a setting."""

DEFAULTS: dict[str, Settings] = {"bench": BenchSettings(), "selftest": SelftestSettings()}


def options_of(command: str) -> dict[str, str]:
    """Parameter -> flag, of all options of a command that are settings."""
    group: Any = typer.main.get_command(app)
    parameters = group.commands[command].params
    return {parameter.name: parameter.opts[0] for parameter in parameters if parameter.name not in NO_SETTINGS}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Run a command with these arguments up to where it would start, and return its settings."""
    taken: list[Settings] = []

    def take(settings: Settings, **_: Any) -> int:
        taken.append(settings)
        return 0

    monkeypatch.setattr(bench_run, "run_bench", take)
    monkeypatch.setattr(selftest_run, "run_selftest", take)
    for command in EXAMPLES:
        for name in options_of(command):
            monkeypatch.delenv(variable(command, name), raising=False)

    def start(*arguments: str) -> Settings:
        assert entry.run(list(arguments)) == 0
        return taken.pop()

    return start


def variable(command: str, name: str) -> str:
    return f"GPUBALANCE_{command.upper()}_{name.upper()}"


def arguments(command: str, name: str) -> list[str]:
    flag, (text, value) = options_of(command)[name], EXAMPLES[command][name]
    return [command, flag] if value is True else [command, flag, text]


def value_of(settings: Settings, name: str) -> Any:
    return getattr(settings, NAMES.get(name, name))


BOTH = pytest.mark.parametrize("command", EXAMPLES)
EVERY = pytest.mark.parametrize(("command", "name"), [(each, name) for each in EXAMPLES for name in EXAMPLES[each]])


@BOTH
def test_every_option_is_tried_below(command: str) -> None:
    assert set(EXAMPLES[command]) == set(options_of(command))


@BOTH
def test_every_option_is_a_setting_and_every_setting_has_an_option(command: str) -> None:
    settings = {field.name for field in fields(DEFAULTS[command])} - {"origins"}
    assert {NAMES.get(name, name) for name in options_of(command)} == settings


@EVERY
def test_an_option_that_was_given_comes_from_its_flag(started: Started, command: str, name: str) -> None:
    settings = started(*arguments(command, name))
    assert value_of(settings, name) == EXAMPLES[command][name][1]
    assert settings.origins == {NAMES.get(name, name): "flag"}


@EVERY
def test_an_option_of_the_environment_comes_from_its_variable(
    started: Started, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    text, value = EXAMPLES[command][name]
    monkeypatch.setenv(variable(command, name), text)
    settings = started(command)
    assert value_of(settings, name) == value
    assert settings.origins == {NAMES.get(name, name): variable(command, name)}


@EVERY
def test_an_option_of_a_file_comes_from_it(started: Started, tmp_path: Path, command: str, name: str) -> None:
    path, (text, value) = tmp_path / "node.toml", EXAMPLES[command][name]
    flag, kind = options_of(command)[name].removeprefix("--"), known_options()[command][name]
    written = {Kind.FLAG: "true", Kind.WHOLE: text, Kind.NUMBER: text}.get(kind, json.dumps(text))
    path.write_text(f"[{command}]\n{flag} = {written}\n")
    settings = started("--config", str(path), command)
    assert value_of(settings, name) == value
    assert settings.origins == {NAMES.get(name, name): f"file:{path}"}


@EVERY
def test_a_flag_counts_more_than_a_variable(
    started: Started, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    text, value = EXAMPLES[command][name]
    monkeypatch.setenv(variable(command, name), "0" if name == "force" else text)
    settings = started(*arguments(command, name))
    assert value_of(settings, name) == value
    assert settings.origins == {NAMES.get(name, name): "flag"}


@EVERY
def test_an_option_that_nobody_gave_has_its_default_and_no_origin(started: Started, command: str, name: str) -> None:
    settings = started(command)
    assert value_of(settings, name) == value_of(DEFAULTS[command], name)
    assert value_of(settings, name) != EXAMPLES[command][name][1]
    assert settings.origins == {}


@EVERY
def test_an_empty_variable_is_no_value(
    started: Started, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    monkeypatch.setenv(variable(command, name), "")
    settings = started(command)
    assert value_of(settings, name) == value_of(DEFAULTS[command], name)
    assert settings.origins == {}


def test_faults_are_collected(started: Started) -> None:
    settings = started("bench", "--inject", "sleep:rank=1,ms=5", "--inject", "memory:rank=0,percent=35")
    assert [fault.kind for fault in value_of(settings, "inject")] == ["sleep", "memory"]


@pytest.mark.parametrize(("command", "place"), [("bench", bench_run), ("selftest", selftest_run)])
def test_json_is_no_setting_but_can_be_asked_for_by_a_variable(
    monkeypatch: pytest.MonkeyPatch, command: str, place: object
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(place, f"run_{command}", lambda settings, *, as_json, **_: asked.append(as_json) or 0)
    entry.run([command])
    entry.run([command, "--json"])
    monkeypatch.setenv(variable(command, "json"), "1")
    entry.run([command])
    assert asked == [False, True, True]

"""A file of settings at the command line: precedence, origins, refusals, and what `gpubalance config` shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from gpubalance.cli import bench_run, entry, probe_run, selftest_run
from gpubalance.cli.app import app
from gpubalance.cli.config_file import known_options, options_of
from gpubalance.config import Kind
from gpubalance.faults import Fault
from gpubalance.settings import BenchSettings, Margin, ProbeSettings
from tests.reports.helpers import KEPT
from tests.support import ROOT, command_environment, run_cli

Streams = pytest.CaptureFixture[str]
Started = Callable[..., Any]

TEXT = """
[bench]
nproc = 3
devices = [2, 0]
budget = 90
inject = ["sleep:rank=1,ms=5"]
force = true
fail-on = "warn"
[probe]
only = ["M", "X1"]
expect_gpus = 8
[thresholds]
margin_warn = 4
margin_fail = 8
"""


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for command, options in known_options().items():
        for name in (*options, "config"):
            monkeypatch.delenv(f"GPUBALANCE_{command}_{name}".upper().replace(".", "_"), raising=False)
    monkeypatch.delenv("GPUBALANCE_CONFIG", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Run a command up to where it would start, and return its settings."""
    taken: list[Any] = []

    def take(settings: Any, **_: Any) -> int:
        taken.append(settings)
        return 0

    monkeypatch.setattr(bench_run, "run_bench", take)
    monkeypatch.setattr(probe_run, "run_probe", take)
    monkeypatch.setattr(selftest_run, "run_selftest", take)

    def start(*arguments: str) -> Any:
        assert entry.run(list(arguments)) == 0
        return taken.pop()

    return start


def expected_bench(path: Path) -> BenchSettings:
    values: dict[str, Any] = {
        "nproc": 3,
        "devices": ("2", "0"),
        "budget_s": 90.0,
        "inject": (Fault("sleep", rank=1, ms=5.0),),
        "force": True,
        "fail_on": "warn",
        "margin": Margin(0.04, 0.08),
    }
    return BenchSettings(**values, origins=dict.fromkeys(values, f"file:{path}"))


@pytest.mark.parametrize("place", ["before", "behind", "variable", "variable of the command"])
def test_a_file_gives_what_flags_would_give_wherever_it_is_named(
    started: Started, monkeypatch: pytest.MonkeyPatch, file: Path, place: str
) -> None:
    variables = {"variable": "GPUBALANCE_CONFIG", "variable of the command": "GPUBALANCE_BENCH_CONFIG"}
    if place in variables:
        monkeypatch.setenv(variables[place], str(file))
    before = ["--config", str(file)] if place == "before" else []
    behind = ["--config", str(file)] if place == "behind" else []
    assert started(*before, "bench", *behind) == expected_bench(file)


def test_each_command_takes_its_own_table(started: Started, file: Path) -> None:
    origins = dict.fromkeys(("only", "expect_gpus"), f"file:{file}")
    assert started("--config", str(file), "probe") == ProbeSettings(only=("M", "X1"), expect_gpus=8, origins=origins)


def test_a_flag_counts_more_than_a_variable_and_a_variable_more_than_the_file(
    started: Started, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    monkeypatch.setenv("GPUBALANCE_BENCH_NPROC", "4")
    monkeypatch.setenv("GPUBALANCE_BENCH_BUDGET", "5m")
    monkeypatch.setenv("GPUBALANCE_BENCH_MODEL", "transformer")
    settings = started("--config", str(file), "bench", "--nproc", "5", "--inject", "memory:rank=0,percent=35")
    assert (settings.nproc, settings.budget_s, settings.model) == (5, 300.0, "transformer")
    assert [fault.kind for fault in settings.inject] == ["memory"]
    assert settings.origins == {
        "nproc": "flag",
        "budget_s": "GPUBALANCE_BENCH_BUDGET",
        "model": "GPUBALANCE_BENCH_MODEL",
        "inject": "flag",
        **dict.fromkeys(("devices", "force", "fail_on", "margin"), f"file:{file}"),
    }


def test_the_file_behind_a_command_counts_instead_of_the_one_before_it(
    started: Started, file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[bench]\nseed = 7\n")
    settings = started("--config", str(file), "bench", "--config", str(other))
    assert settings == BenchSettings(seed=7, origins={"seed": f"file:{other}"})
    other.write_text("[probe]\n")
    assert started("--config", str(file), "bench", "--config", str(other)) == BenchSettings()


def test_without_a_file_nothing_comes_from_one(started: Started) -> None:
    assert started("bench") == BenchSettings()


def test_an_empty_variable_names_no_file(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBALANCE_CONFIG", "")
    assert started("bench") == BenchSettings()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[bench]\nnprok = 2", "key bench.nprok is not known\n  next: did you mean nproc?\n"),
        ("[bensh]", "table [bensh] is not known\n  next: did you mean bench?\n"),
        ("[bench]\nnproc = 'two'", "bench.nproc must be a whole number, not text: 'two'\n"),
        ("[bench]\nconfig = 'other.toml'", "key bench.config is not known"),
        ("[config]\nshow = true", "table [config] is not known"),
        ("[report]\nrun = 'run.json'", "key report.run is not known"),
        ("[bench", "is not TOML: "),
    ],
)
@pytest.mark.parametrize("command", ["bench", "probe"])
def test_a_mistake_anywhere_in_the_file_is_wrong_use_of_every_command(
    capsys: Streams, tmp_path: Path, command: str, text: str, words: str
) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text)
    assert entry.run(["--config", str(path), command]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"gpubalance: {path}")
    assert words in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[bench]\nbudget = 'soon'", "'soon' is not a duration"),
        ("[bench]\nnproc = -1", "nproc must be above 0"),
        ("[bench]\ninject = 'compute'", "fault 'compute' needs exactly"),
        ("[thresholds]\nmargin_warn = 10\nmargin_fail = 5", "margin 10 %:5 %"),
    ],
)
def test_a_value_that_is_wrong_is_answered_as_that_of_a_flag(
    capsys: Streams, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text)
    assert entry.run(["bench", "--config", str(path)]) == 2
    assert words in capsys.readouterr().err


def test_a_name_that_a_terminal_would_obey_is_spelled_out(capsys: Streams, tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('[bench]\n"\\u001b[31mred\\nFAIL" = 2')
    assert entry.run(["--config", str(path), "bench"]) == 2
    assert "key bench.\\x1b[31mred FAIL is not known" in capsys.readouterr().err


def test_the_record_says_which_file_a_value_came_from(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('[probe]\nsimulate = "h200x2"\njson = true\n')
    environment = command_environment(GPUBALANCE_CONFIG="node.toml")
    done = run_cli("probe", env=environment, cwd=tmp_path)
    settings = json.loads(done.stdout)["probe"]["settings"]
    assert settings["simulate"] == {"value": "h200x2", "origin": "file:node.toml"}
    assert settings["load"] == {"value": False, "origin": "default"}


def shown(capsys: Streams, *arguments: str) -> dict[str, Any]:
    assert entry.run([*arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_every_setting_of_each_command_is_shown_with_value_and_origin(capsys: Streams) -> None:
    document = shown(capsys, "config", "--show")
    assert document["config"] is None
    assert {name: set(options) for name, options in document["commands"].items()} == {
        name: set(options) for name, options in known_options().items()
    }
    assert document["commands"]["bench"]["stall_timeout"] == {"value": "60s", "origin": "default"}
    assert document["commands"]["bench"]["nproc"] == {"value": None, "origin": "default"}
    origins = {each["origin"] for options in document["commands"].values() for each in options.values()}
    assert origins == {"default"}


def test_what_is_shown_is_what_a_command_takes(
    capsys: Streams, started: Started, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    monkeypatch.setenv("GPUBALANCE_BENCH_NPROC", "4")
    bench = shown(capsys, "config", "--config", str(file))["commands"]["bench"]
    settings = started("--config", str(file), "bench")
    assert bench["nproc"] == {"value": settings.nproc, "origin": settings.origins["nproc"]}
    assert bench["inject"] == {"value": ["sleep:rank=1,ms=5"], "origin": settings.origins["inject"]}
    assert bench["margin"] == {"value": "4:8", "origin": settings.origins["margin"]}
    assert bench["seed"] == {"value": settings.seed, "origin": "default"}


def test_a_file_of_one_command_is_shown_there_only(
    capsys: Streams, monkeypatch: pytest.MonkeyPatch, file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[bench]\nseed = 7\n[probe]\nforce = true\n")
    monkeypatch.setenv("GPUBALANCE_BENCH_CONFIG", str(other))
    document = shown(capsys, "--config", str(file), "config")
    assert document["config"] == str(file)
    assert document["commands"]["bench"]["seed"] == {"value": 7, "origin": f"file:{other}"}
    assert document["commands"]["bench"]["nproc"] == {"value": None, "origin": "default"}
    assert document["commands"]["probe"]["force"] == {"value": False, "origin": "default"}
    assert document["commands"]["probe"]["expect_gpus"] == {"value": 8, "origin": f"file:{file}"}


def test_as_text_each_setting_is_a_row(capsys: Streams, file: Path) -> None:
    assert entry.run(["config", "--show", "--config", str(file)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["command", "setting", "value", "origin"]
    assert ["bench", "nproc", "3", f"file:{file}"] in rows
    assert ["bench", "force", "true", f"file:{file}"] in rows
    assert ["bench", "inject", "sleep:rank=1,ms=5", f"file:{file}"] in rows
    assert ["bench", "out", "-", "default"] in rows
    assert ["probe", "load", "false", "default"] in rows
    assert len(rows) == 1 + sum(len(options) for options in known_options().values())


def test_a_file_is_checked_without_being_used(capsys: Streams, file: Path) -> None:
    assert entry.run(["config", "--config", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: every name and type in it is right\n"
    assert entry.run(["config"]) == 0
    assert capsys.readouterr().out == "no file of settings is given\n"
    file.write_text("[bench]\nx = 1\n")
    assert entry.run(["config", "--config", str(file)]) == 2


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("GPUBALANCE_BENCH_NPROC", "two", "GPUBALANCE_BENCH_NPROC gives no right value for nproc of bench"),
        ("GPUBALANCE_PROBE_CONFIG", "/nowhere", "GPUBALANCE_PROBE_CONFIG gives no right value for config of probe"),
        ("GPUBALANCE_CONFIG", "/nowhere", "/nowhere cannot be read: No such file or directory"),
    ],
)
def test_a_variable_that_no_command_could_read_is_named(
    capsys: Streams, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert entry.run(["config", "--show"]) == 2
    assert words in capsys.readouterr().err


def test_every_option_there_is_can_stand_in_a_file() -> None:
    group: Any = typer.main.get_command(app)
    for name, options in known_options().items():
        command = group
        for word in name.split("."):
            command = command.commands[word]
        declared = {each.name for each in command.params if each.param_type_name == "option"}
        assert set(options) == declared - {"config", "help"}
        assert "config" in declared


BASELINES = """
[baseline.save]
name = "old"
[baseline.show]
json = true
"""


@pytest.mark.parametrize("place", ["before", "behind", "variable"])
def test_commands_of_baseline_take_their_tables(
    capsys: Streams, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    path, run = tmp_path / "node.toml", str(KEPT["h200x2-healthy"])
    path.write_text(BASELINES)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    if place == "variable":
        monkeypatch.setenv("GPUBALANCE_CONFIG", str(path))
    before = ["--config", str(path)] if place == "before" else []
    behind = ["--config", str(path)] if place == "behind" else []
    assert entry.run([*before, "baseline", "save", run, *behind]) == 0
    assert " old: run " in capsys.readouterr().out
    assert entry.run([*before, "baseline", "show", *behind]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["baselines"]] == ["old"]
    monkeypatch.setenv("GPUBALANCE_BASELINE_SAVE_NAME", "newer")
    assert entry.run([*before, "baseline", "save", run, *behind]) == 0
    assert " newer: run " in capsys.readouterr().out


def test_commands_of_baseline_are_shown_with_their_origins(
    capsys: Streams, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "node.toml"
    path.write_text(BASELINES)
    monkeypatch.setenv("GPUBALANCE_BASELINE_FORGET_NAME", "newer")
    commands = shown(capsys, "config", "--config", str(path))["commands"]
    assert commands["baseline.save"]["name"] == {"value": "old", "origin": f"file:{path}"}
    assert commands["baseline.show"]["json"] == {"value": True, "origin": f"file:{path}"}
    assert commands["baseline.forget"]["name"] == {"value": "newer", "origin": "GPUBALANCE_BASELINE_FORGET_NAME"}
    assert commands["baseline.forget"]["all"] == {"value": False, "origin": "default"}


def test_what_an_option_takes_is_what_its_function_declares() -> None:
    bench = known_options()["bench"]
    expected = {
        "nproc": Kind.WHOLE,
        "devices": Kind.LIST,
        "device": Kind.TEXT,
        "workload": Kind.LIST,
        "budget": Kind.TIME,
        "stall_timeout": Kind.TIME,
        "margin": Kind.TEXT,
        "inject": Kind.MANY,
        "sample_interval": Kind.NUMBER,
        "min_score": Kind.NUMBER,
        "force": Kind.FLAG,
    }
    assert {name: bench[name] for name in expected} == expected


def test_arguments_and_the_context_are_no_options() -> None:
    from gpubalance.cli.report import report_command

    assert "run" not in options_of(report_command)
    assert options_of(report_command)["to"] is Kind.TEXT


def test_the_file_in_the_readme_is_right(started: Started, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    path = tmp_path / "node.toml"
    path.write_text(readme.partition("```toml\n")[2].partition("```")[0])
    settings = started("bench", "--config", str(path))
    assert (settings.nproc, settings.devices, settings.budget_s) == (8, ("0", "GPU-1a2b"), 300.0)
    assert (settings.fail_on, settings.margin) == ("warn", Margin(0.05, 0.10))
    assert started("--config", str(path), "probe").require == ("xid", "N1")
    selftest = started("--config", str(path), "selftest")
    assert (selftest.quick, selftest.rows, selftest.margin) == (True, ("compute", "sleep"), Margin(0.05, 0.10))

"""Every way out of the program has its exit code, and a broken stream never changes it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from gpubalance.cli import entry
from gpubalance.errors import (
    BusyError,
    CannotMeasureError,
    ExitCode,
    GpubalanceError,
    Interrupted,
    UsageError,
)
from tests.support import ROOT, command_environment

Ending = Callable[..., int]


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch) -> Ending:
    """The exit code of a command that ends with this error, or returns this value."""
    monkeypatch.delenv("GPUBALANCE_DEBUG", raising=False)

    def run(ending: BaseException | object, *arguments: str) -> int:
        def command(_: list[str]) -> Any:
            if isinstance(ending, BaseException):
                raise ending
            return ending

        monkeypatch.setattr(entry, "_run_app", command)
        return entry.run(list(arguments))

    return run


class Broken(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, _: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")


ENDINGS = [
    (UsageError("no such rank", "give another"), 2),
    (CannotMeasureError("the driver does not answer", "reboot"), 3),
    (BusyError("another gpubalance (pid 7) is measuring here", "wait"), 3),
    (Interrupted(1), 129),
    (Interrupted(2), 130),
    (Interrupted(15), 143),
    (GpubalanceError("anything else"), 3),
]


@pytest.mark.parametrize(("error", "code"), ENDINGS, ids=lambda value: type(value).__name__)
def test_an_expected_failure_is_its_code_one_sentence_and_a_next_step(
    ends_with: Ending, capsys: pytest.CaptureFixture[str], error: GpubalanceError, code: int
) -> None:
    assert ends_with(error) == code
    out, err = capsys.readouterr()
    assert out == ""
    next_step = f"  next: {error.next_step}\n" if error.next_step else ""
    assert err == f"gpubalance: {error.message}\n{next_step}"


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_a_traceback_of_an_expected_failure_is_shown_on_demand(
    ends_with: Ending, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "variable":
        monkeypatch.setenv("GPUBALANCE_DEBUG", "1")
    arguments = ["--debug"] if how == "flag" else []
    assert ends_with(UsageError("no such rank"), *arguments) == 2
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_variable_of_zero_asks_for_no_traceback(
    ends_with: Ending, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUBALANCE_DEBUG", "0")
    ends_with(UsageError("no such rank"))
    assert "Traceback" not in capsys.readouterr().err


def test_a_broken_installation_is_no_verdict_and_says_how_to_mend_it(
    ends_with: Ending, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends_with(ImportError("No module named 'numpy'")) == 3
    err = capsys.readouterr().err
    assert err.splitlines()[0] == "gpubalance: this installation is broken: No module named 'numpy'"
    assert "Traceback" not in err
    assert ends_with(ModuleNotFoundError("No module named 'rich'"), "--debug") == 3
    assert "Traceback" in capsys.readouterr().err


def test_an_interruption_from_the_keyboard_is_130_without_a_word(
    ends_with: Ending, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends_with(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [ValueError("odd"), RuntimeError("two\nlines"), MemoryError(), AssertionError()])
def test_anything_else_is_an_error_of_ours_with_a_traceback_and_never_a_failed_node(
    ends_with: Ending, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    assert ends_with(error) == 3
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert f"gpubalance: internal error: {type(error).__name__}: " in err
    assert err.splitlines()[-1] == "  next: please report it with the lines above"


def test_a_way_out_that_is_not_ours_never_says_that_the_node_failed(ends_with: Ending) -> None:
    assert ends_with(SystemExit(1)) == 3
    assert ends_with(SystemExit(0)) == 3


@pytest.mark.parametrize("code", [*ExitCode, 143])
def test_what_a_command_returns_is_the_exit_code(ends_with: Ending, code: int) -> None:
    assert ends_with(code) == code


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (1, 1), (143, 143), ("text", 0)])
def test_a_command_without_a_code_has_passed(monkeypatch: pytest.MonkeyPatch, returned: Any, code: int) -> None:
    monkeypatch.setattr("gpubalance.cli.app.app", lambda *_, **__: returned)
    assert entry.run([]) == code


def test_an_abort_of_typer_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def abort(*_: Any, **__: Any) -> None:
        raise typer.Abort

    monkeypatch.setattr("gpubalance.cli.app.app", abort)
    assert entry.run([]) == 130


@pytest.mark.parametrize("stream", [Broken(), None], ids=["broken", "closed"])
@pytest.mark.parametrize(
    ("ending", "code"),
    [*ENDINGS, (ImportError("numpy"), 3), (ValueError("odd"), 3), (KeyboardInterrupt(), 130), (SystemExit(1), 3)],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_a_stderr_that_nobody_reads_changes_no_exit_code(
    ends_with: Ending,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stream: Broken | None,
    ending: BaseException,
    code: int,
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    assert ends_with(ending, "--debug") == code
    assert capsys.readouterr().out == ""


def test_a_complaint_survives_any_encoding_of_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    monkeypatch.setattr(sys, "stderr", stream)
    entry.complain("Übertragung", "warten für später")
    assert stream.buffer.getvalue().decode() == "gpubalance: \\xdcbertragung\n  next: warten f\\xfcr sp\\xe4ter\n"


def test_a_complaint_holds_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    entry.complain("/tmp/\x1b[31mred\n.json is damaged", "see\x07")
    assert capsys.readouterr().err == "gpubalance: /tmp/\\x1b[31mred .json is damaged\n  next: see\\x07\n"


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Exit codes with which `main` left."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


@pytest.mark.parametrize(("code", "expected"), [(0, 3), (1, 1), (2, 2), (3, 3), (143, 143)])
def test_a_result_that_could_not_be_written_never_passes(
    monkeypatch: pytest.MonkeyPatch, left: list[int], code: int, expected: int
) -> None:
    monkeypatch.setattr(entry, "run", lambda _: code)
    monkeypatch.setattr(sys, "stdout", Broken())
    entry.main()
    assert left == [expected]


@pytest.mark.parametrize("stream", [Broken(), None], ids=["broken", "closed"])
def test_words_that_could_not_be_written_are_no_result(
    monkeypatch: pytest.MonkeyPatch, left: list[int], stream: Broken | None
) -> None:
    monkeypatch.setattr(entry, "run", lambda _: 0)
    monkeypatch.setattr(sys, "stderr", stream)
    entry.main()
    assert left == [0]


KEPT = str(ROOT / "examples/runs/h200x2-slow.json")

VARIABLE = {"GPUBALANCE_BENCH_EXIT_STYLE": "nagios"}
STYLES: dict[str, tuple[list[str], dict[str, str], int]] = {
    "nobody asks": (["bench", "--nproc", "many"], {}, 2),
    "flag before": (["bench", "--exit-style", "nagios", "--no-such-flag"], {}, 3),
    "flag behind": (["bench", "--no-such-flag", "--exit-style", "nagios"], {}, 3),
    "flag in one word": (["bench", "--nproc", "many", "--exit-style=nagios"], {}, 3),
    "plain": (["bench", "--nproc", "many", "--exit-style", "plain"], {}, 2),
    "the last flag counts": (["bench", "--exit-style=nagios", "--exit-style", "plain", "--nproc", "many"], {}, 2),
    "in either spelling": (["bench", "--exit-style", "plain", "--exit-style=nagios", "--nproc", "many"], {}, 3),
    "variable": (["bench", "--nproc", "many"], VARIABLE, 3),
    "flag over variable": (["bench", "--nproc", "many", "--exit-style", "plain"], VARIABLE, 2),
    "unknown style": (["bench", "--exit-style", "zabbix"], {}, 2),
    "unknown style, variable": (["bench", "--exit-style", "zabbix"], VARIABLE, 3),
    "unknown style in the variable": (["bench"], {"GPUBALANCE_BENCH_EXIT_STYLE": "zabbix"}, 2),
    "style without a value": (["bench", "--exit-style"], {}, 2),
    "style without a value, variable": (["bench", "--exit-style"], VARIABLE, 3),
    "unknown outcome": (["bench", "--on-no-verdict", "warn", "--exit-style", "nagios"], {}, 3),
    "variable of another command": (["probe", "--no-such-flag"], VARIABLE, 2),
    "variable of probe": (["probe", "--no-such-flag"], {"GPUBALANCE_PROBE_EXIT_STYLE": "nagios"}, 3),
    "variable of report": (["report"], {"GPUBALANCE_REPORT_EXIT_STYLE": "nagios"}, 3),
    "a command that has no style": (["schema", "--no-such-flag"], VARIABLE, 2),
    "no command": ([], VARIABLE, 2),
    "no such command": (["nonsense"], VARIABLE, 2),
    "no such command, flag": (["nonsense", "--exit-style", "nagios"], {}, 3),
    "file": (["bench", "--config", "{file}", "--no-such-flag"], {}, 3),
    "file in one word": (["bench", "--no-such-flag", "--config={file}"], {}, 3),
    "file before the command": (["--config", "{file}", "bench", "--nproc", "many"], {}, 3),
    "file by variable": (["bench", "--nproc", "many"], {"GPUBALANCE_BENCH_CONFIG": "{file}"}, 3),
    "file for all by variable": (["bench", "--nproc", "many"], {"GPUBALANCE_CONFIG": "{file}"}, 3),
    "flag over file": (["bench", "--config", "{file}", "--nproc", "many", "--exit-style", "plain"], {}, 2),
    "file about another command": (["probe", "--config", "{file}", "--no-such-flag"], {}, 2),
    "file that is not there": (["bench", "--config", "{file}.not", "--nproc", "many"], {}, 2),
    "file that is not there, flag": (["bench", "--config", "{file}.not", "--exit-style", "nagios"], {}, 3),
}


@pytest.mark.parametrize(("arguments", "variables", "code"), STYLES.values(), ids=STYLES.keys())
def test_wrong_use_is_unknown_where_the_codes_of_a_plugin_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    variables: dict[str, str],
    code: int,
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[bench]\nexit-style = "nagios"\n')
    for name in ("BENCH_EXIT_STYLE", "PROBE_EXIT_STYLE", "REPORT_EXIT_STYLE", "BENCH_CONFIG", "CONFIG"):
        monkeypatch.delenv(f"GPUBALANCE_{name}", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(file=file))
    assert entry.run([argument.format(file=file) for argument in arguments]) == code
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "broken", "code"),
    [
        (["--help"], "stdout", 3),
        (["report", KEPT], "stdout", 3),
        (["report", KEPT], "stderr", 1),
        (["bench", "--no-such-flag"], "stderr", 2),
        (["report", "/nonexistent/run.json"], "stderr", 2),
    ],
)
def test_a_reader_that_left_is_never_taken_for_a_failed_node(arguments: list[str], broken: str, code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, broken: writer}
    done = subprocess.run(
        [sys.executable, "-m", "gpubalance", *arguments], env=command_environment(), check=False, timeout=100, **streams
    )
    os.close(writer)
    assert done.returncode == code

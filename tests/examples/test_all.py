"""What holds for every example: a README, scripts without a mistake, commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import typer

from gpubalance.cli.app import app
from tests.examples.helpers import EXAMPLES, checked, files, tool

FOLDERS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir() and path.name not in ("runs", "probes"))
SCRIPTS = [path for path in files("*") if path.read_bytes().startswith(b"#!/bin/sh\n")]
CALL = re.compile(r"(?<![\w.-])gpubalance +(bench|probe|report|verdict|compare|schema)\b([^\n`;|>#]*)")
TEXTS = [path for folder in FOLDERS for path in files(f"{folder.name}/*") if path.suffix not in (".ipynb", ".pyc")]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_each_has_a_readme_that_is_short(folder: Path) -> None:
    lines = (folder / "README.md").read_text().splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 130


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shell_scripts_are_clean_and_can_be_started(path: Path) -> None:
    checker = tool("shellcheck")
    assert checker is not None
    checked([checker, "--shell=sh", path])
    assert path.stat().st_mode & 0o111 == 0o111


def test_all_four_scripts_are_looked_at() -> None:
    assert [path.name for path in SCRIPTS] == [
        "gpubalance-nfd", "gpubalance-npd", "gpubalance-health", "gpubalance-prolog",
    ]  # fmt: skip


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_flag_in_every_command_is_one_that_gpubalance_has(path: Path) -> None:
    known = {
        name: {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
        for name, command in _group().commands.items()
    }
    for command, flags in _commands(path.read_text()):
        assert command in known, command
        assert set(flags) <= known[command], command


def _group() -> click.Group:
    group = typer.main.get_command(app)
    assert hasattr(group, "commands")
    return group  # type: ignore[return-value]


def _commands(text: str) -> list[tuple[str, list[str]]]:
    """Calls of gpubalance with a subcommand, and the flags of each up to the end of its line or quotation."""
    unfolded = re.sub(r"(>-|\\\\)\n|\n\s+(?=--)|\]\n\s+args: \[", " ", text)
    plain = re.sub(r"[\[\],\"']", " ", unfolded)
    return [
        (command, [word.partition("=")[0] for word in rest.split() if word.startswith("--")])
        for command, rest in CALL.findall(plain)
    ]

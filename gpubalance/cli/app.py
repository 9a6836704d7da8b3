"""The commands. Nothing heavy is imported until a command runs, so that `--help` is instant."""

from __future__ import annotations

from typing import Annotated

import typer

from gpubalance import __version__
from gpubalance.cli import baseline, bench, compare, config, probe, report, schema, selftest, verdict
from gpubalance.cli.config_file import ConfigOption, with_config

app = typer.Typer(
    name="gpubalance",
    help="Tells in about a minute whether a GPU node can train evenly, and if not, which part holds it back.\n\n"
    "Exit codes: 0 pass (warnings included), 1 fail, 2 wrong use, 3 no verdict, 128+n ended by signal n.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GPUBALANCE"},
)
app.command("probe")(probe.probe_command)
app.command("bench")(bench.bench_command)
app.command("selftest")(selftest.selftest_command)
app.command("report")(report.report_command)
app.command("compare")(compare.compare_command)
app.add_typer(baseline.baseline_app, name="baseline")
app.command("verdict")(verdict.verdict_command)
app.command("schema")(schema.schema_command)
app.command("config")(config.config_command)


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpubalance {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda value: _version(wanted=value),
            is_eager=True,
            help="Show it and exit.",
        ),
    ] = False,
    config: ConfigOption = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of expected failures too.")] = False,
) -> None:
    """Options that come before the command."""


for command in (*app.registered_commands, *baseline.baseline_app.registered_commands):
    if command.callback is not None:
        command.callback = with_config(command.callback)

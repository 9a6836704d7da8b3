"""Options that several commands have, declared once. Light: it is imported for `--help`."""

from __future__ import annotations

from typing import Annotated

import typer

ReportOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FORMAT=PATH", help="Write further reports: html=run.html,junit=run.xml. Path - is stdout."),
]

ExitStyleOption = Annotated[
    str, typer.Option(metavar="STYLE", help="plain, or nagios: 0 ok, 1 warning, 2 critical, 3 unknown.")
]

NoVerdictOption = Annotated[
    str | None, typer.Option(metavar="OUTCOME", help="fail or pass: what no verdict counts as. Default: exit 3.")
]

ThresholdOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Move a gate of a check, for example limit_warn=70; the README lists all."),
]

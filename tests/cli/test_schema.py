"""`gpubalance schema` as it is typed."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from gpubalance.cli import entry
from gpubalance.reports.schema import schema_text
from tests.reports.helpers import KEPT


@pytest.mark.parametrize(
    ("arguments", "name"), [((), "run"), (("run",), "run"), (("probe",), "probe"), (("selftest",), "selftest")]
)
def test_it_prints_the_schema_and_nothing_else(
    arguments: tuple[str, ...], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.run(["schema", *arguments]) == 0
    assert capsys.readouterr() == (schema_text(name), "")


def test_what_it_prints_describes_what_report_prints(capsys: pytest.CaptureFixture[str]) -> None:
    entry.run(["schema"])
    schema = json.loads(capsys.readouterr().out)
    entry.run(["report", str(KEPT["h200x2-slow"]), "--to", "json"])
    Draft202012Validator(schema).validate(json.loads(capsys.readouterr().out))


def test_a_document_that_is_not_known_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["schema", "table"]) == 2
    assert capsys.readouterr() == (
        "",
        "gpubalance: document 'table' is not known\n  next: choose from: run, probe, selftest\n",
    )

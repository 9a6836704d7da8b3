"""`gpubalance report`: the same run in every form."""

from __future__ import annotations

import io
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from gpubalance.checks.verdict import judge
from gpubalance.cli import entry
from gpubalance.cli.report import FORMATS
from gpubalance.record.file import save_text
from gpubalance.record.run import Run
from gpubalance.record.tables import samples_table
from gpubalance.reports.document import document_text
from gpubalance.reports.terminal import report_lines
from tests.checks.probing.test_kept_probes import KEPT as KEPT_PROBES
from tests.reports.helpers import HOSTILE, KEPT, kept, named, pair, without_ddp
from tests.support import not_none

Streams = pytest.CaptureFixture[bytes]


def saved(run: Run, path: Path) -> str:
    save_text(path, document_text(run, judge(run)))
    return str(path)


@pytest.mark.parametrize("name", KEPT)
def test_by_default_it_is_the_report_that_people_read(capsysbinary: Streams, name: str) -> None:
    entry.run(["report", str(KEPT[name])])
    out, err = capsysbinary.readouterr()
    run = kept(name)
    assert out.decode().splitlines() == [line.text for line in report_lines(run, judge(run), str(KEPT[name]))]
    assert err == b""


def test_json_is_what_bench_wrote_for_that_run_byte_for_byte(tmp_path: Path, capsysbinary: Streams) -> None:
    path = saved(pair(100.0, 120.0), tmp_path / "run.json")
    assert entry.run(["report", path, "--to", "json"]) == 1
    assert capsysbinary.readouterr().out == Path(path).read_bytes()


def test_a_run_that_was_judged_by_other_rules_is_judged_again(tmp_path: Path, capsysbinary: Streams) -> None:
    path = Path(saved(pair(100.0, 100.0), tmp_path / "run.json"))
    document = json.loads(path.read_text())
    document["judgement"] = {"verdict": "fail", "sentence": "rules of long ago"}
    path.write_text(json.dumps(document))
    assert entry.run(["report", str(path), "--to", "json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["judgement"]["verdict"] == "pass"


def test_csv_holds_the_samples_and_reads_back(capsysbinary: Streams) -> None:
    assert entry.run(["report", str(KEPT["h200x2-slow"]), "--to", "csv"]) == 0
    table = pd.read_csv(io.BytesIO(capsysbinary.readouterr().out))
    pd.testing.assert_frame_equal(table, not_none(samples_table(kept("h200x2-slow"))), check_dtype=False)
    assert set(table["device"]) == {0, 1}
    assert len(table) == 2 * 501


def test_csv_of_a_run_without_samples_has_a_heading_and_no_rows(tmp_path: Path, capsysbinary: Streams) -> None:
    assert entry.run(["report", saved(pair(100.0, 100.0), tmp_path / "run.json"), "--to", "csv"]) == 0
    assert capsysbinary.readouterr().out == b"t_s,device,uuid,phase\n"


def test_svg_is_a_picture_of_the_report(capsysbinary: Streams) -> None:
    assert entry.run(["report", str(KEPT["h200x2-slow"]), "--to", "svg"]) == 1
    root = ET.fromstring(capsysbinary.readouterr().out)
    text = "".join(root.itertext()).replace("\xa0", " ")
    assert root.tag.endswith("}svg")
    assert "FAIL  rank 1 is 21.4 % slower than rank 0" in text
    assert "Saved: h200x2-slow.json" in text


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_takes_hostile_names_and_a_strange_path(tmp_path: Path, capsysbinary: Streams, form: str) -> None:
    path = saved(named(pair(100.0, 108.0), HOSTILE), tmp_path / "\x1b[31m\udcff<run>.json")
    code = entry.run(["report", path, "--to", form])
    out, err = capsysbinary.readouterr()
    assert code == (0 if form == "csv" else 3)
    assert out
    assert b"\x1b" not in out + err
    assert b"Traceback" not in err


EXPECTED = [
    (pair(100.0, 100.0), 0),
    (pair(100.0, 108.0), 0),
    (pair(100.0, 120.0), 1),
    (without_ddp(), 0),
    (pair(100.0), 3),
    (pair(100.0, 100.0, interrupted_by=2), 130),
]


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "csv"])
@pytest.mark.parametrize(("run", "code"), EXPECTED, ids=["pass", "warn", "fail", "alone", "no verdict", "interrupted"])
def test_the_exit_code_is_that_of_the_run(
    tmp_path: Path, capsysbinary: Streams, run: Run, code: int, form: str
) -> None:
    assert entry.run(["report", saved(run, tmp_path / "run.json"), "--to", form]) == code
    assert capsysbinary.readouterr().out


def test_a_form_that_is_not_known_is_wrong_use_and_the_known_ones_are_named(capsysbinary: Streams) -> None:
    assert entry.run(["report", str(KEPT["h200x2-slow"]), "--to", "pdf"]) == 2
    out, err = capsysbinary.readouterr()
    assert out == b""
    known = "terminal, json, svg, csv, html, markdown, junit, prometheus, jsonl, github, nagios"
    assert err.decode() == f"gpubalance: format 'pdf' is not known\n  next: choose from: {known}\n"


def test_a_form_may_come_from_a_variable(monkeypatch: pytest.MonkeyPatch, capsysbinary: Streams) -> None:
    monkeypatch.setenv("GPUBALANCE_REPORT_TO", "json")
    entry.run(["report", str(KEPT["h200x2-slow"])])
    assert json.loads(capsysbinary.readouterr().out)["judgement"]["verdict"] == "fail"


def test_a_run_that_is_not_there_is_wrong_use(capsysbinary: Streams) -> None:
    assert entry.run(["report", "/nonexistent/run.json"]) == 2
    assert capsysbinary.readouterr().err == (
        b"gpubalance: /nonexistent/run.json cannot be read: No such file or directory\n"
    )


@pytest.mark.parametrize("form", ["terminal", "svg"])
@pytest.mark.parametrize("path", [KEPT["h200x2-healthy"], KEPT_PROBES["h200x2-healthy"]], ids=["run", "probe"])
def test_what_comes_from_standard_input_has_no_file(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: Streams, path: Path, form: str
) -> None:
    with path.open("rb") as stream:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        assert entry.run(["report", "-", "--to", form]) == 0
    out = capsysbinary.readouterr().out.decode().replace("&#160;", " ")
    assert "PASS" in out
    assert "aved" not in out

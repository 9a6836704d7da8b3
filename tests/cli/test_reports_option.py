"""`--report` on bench and probe, and `report --to`: places, order, what happens when one of them is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from gpubalance.checks.verdict import judge
from gpubalance.cli import bench_run, entry, reports_option
from gpubalance.cli.bench_run import run_bench
from gpubalance.cli.reports_option import Report, append_summary, check_reports, parse_reports
from gpubalance.errors import UsageError
from gpubalance.record.file import load_record, save_text
from gpubalance.record.run import Run
from gpubalance.reports import github
from gpubalance.reports.document import document_text
from gpubalance.reports.formats import FORMATS, judged, write
from gpubalance.session.bench import Finished
from gpubalance.settings import BenchSettings
from tests.checks.probing.test_kept_probes import KEPT as KEPT_PROBES
from tests.reports.helpers import HOSTILE, KEPT, kept, named, pair

Streams = pytest.CaptureFixture[str]
Measure = Callable[[Run | None], None]
MACHINE = ("junit", "prometheus", "jsonl", "github", "nagios")


@pytest.fixture(autouse=True)
def no_github(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measure:
    """Have the measurement end with this run; the state folder is a new one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def put(run: Run | None) -> None:
        finished = None if run is None else Finished(run, judge(run))
        monkeypatch.setattr(bench_run, "bench", lambda *_: finished)

    return put


def test_what_is_asked_for_is_read_in_order() -> None:
    assert parse_reports(None) == ()
    assert parse_reports(["html=a.html, junit=b=c.xml", "nagios=-"]) == (
        Report("html", Path("a.html")),
        Report("junit", Path("b=c.xml")),
        Report("nagios", None),
    )


REFUSED = {
    "no path": (["html"], "report 'html' is not FORMAT=PATH"),
    "an empty path": (["html="], "report 'html=' is not FORMAT=PATH"),
    "an empty entry": (["html=a,,junit=b"], "report '' is not FORMAT=PATH"),
    "a format that is not known": (["pdf=a"], "report format 'pdf' is not known"),
}


@pytest.mark.parametrize(("texts", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_understood_is_wrong_use(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_reports(texts)


def test_a_format_that_is_not_known_is_answered_with_those_that_are() -> None:
    with pytest.raises(UsageError) as caught:
        parse_reports(["pdf=a"])
    assert caught.value.next_step == f"choose from: {', '.join(FORMATS)}"


PLACES: dict[str, tuple[list[str], str | None, bool, str]] = {
    "two on stdout": (["html=-,junit=-"], None, False, "stdout holds one document, not html and junit"),
    "json as well": (["junit=-"], None, True, "stdout holds one document, not junit and --json"),
    "the same file": (["html={0}/a", "junit={0}/b/../a"], None, False, "two reports cannot both be written to .*/a"),
    "the record's file": (["html={0}/a"], "{0}/a", False, "two reports cannot both be written to .*/a"),
    "a folder": (["html={0}"], None, False, "--report html=.* is a folder"),
    "a device": (["html=/dev/null"], None, False, "--report html=/dev/null is not a regular file"),
    "no such folder": (["html={0}/no/a"], None, False, "--report html=.*/no/a cannot be written: No such file"),
}


@pytest.mark.parametrize(("texts", "out", "as_json", "message"), PLACES.values(), ids=PLACES.keys())
def test_places_that_cannot_be_are_refused(
    tmp_path: Path, texts: list[str], out: str | None, as_json: bool, message: str
) -> None:
    reports = parse_reports([text.format(tmp_path) for text in texts])
    with pytest.raises(UsageError, match=message):
        check_reports(reports, out.format(tmp_path) if out else None, as_json=as_json)


def test_places_are_looked_at_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_run, "bench", lambda *_: pytest.fail("it was measured"))
    with pytest.raises(UsageError, match="--report junit=/nowhere/a cannot be written"):
        run_bench(BenchSettings(), as_json=False, reports=parse_reports(["junit=/nowhere/a"]))


def test_files_are_written_beside_the_report_that_people_read(
    measured: Measure, tmp_path: Path, capsys: Streams
) -> None:
    run = pair(100.0, 120.0)
    measured(run)
    texts = [f"{name}={tmp_path / name}" for name in MACHINE]
    assert run_bench(BenchSettings(), as_json=False, reports=parse_reports([",".join(texts)])) == 1
    out, err = capsys.readouterr()
    assert "\nFAIL  rank 1 is 20 % slower" in out
    assert err == ""
    assert {name: (tmp_path / name).read_text() for name in MACHINE} == {
        name: write(name, run, judge(run)) for name in MACHINE
    }


def test_a_report_on_stdout_is_all_that_is_there(measured: Measure, tmp_path: Path, capsys: Streams) -> None:
    run = pair(100.0, 100.0)
    measured(run)
    reports = parse_reports([f"nagios=-,junit={tmp_path / 'run.xml'}"])
    assert run_bench(BenchSettings(), as_json=False, reports=reports) == 0
    assert capsys.readouterr() == (write("nagios", run, judge(run)), "")
    assert JUnitXml.fromfile(str(tmp_path / "run.xml")).failures == 0


def test_json_on_stdout_and_reports_in_files_go_together(measured: Measure, tmp_path: Path, capsys: Streams) -> None:
    run = pair(100.0, 100.0)
    measured(run)
    assert run_bench(BenchSettings(), as_json=True, reports=parse_reports([f"junit={tmp_path / 'a'}"])) == 0
    assert json.loads(capsys.readouterr().out)["run"]["run_id"] == run.run_id
    assert (tmp_path / "a").exists()


def test_a_parent_that_does_not_report_writes_none(measured: Measure, tmp_path: Path) -> None:
    measured(None)
    assert run_bench(BenchSettings(), as_json=False, reports=parse_reports([f"junit={tmp_path / 'a'}"])) == 0
    assert not (tmp_path / "a").exists()


def full(*_: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("run", "code"), [(pair(100.0, 100.0), 3), (pair(100.0, 120.0), 1)], ids=["no pass", "still a fail"]
)
def test_a_report_that_is_lost_is_said_and_is_no_pass_but_the_others_are_written(
    measured: Measure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Streams, run: Run, code: int
) -> None:
    measured(run)
    lost, kept_path = tmp_path / "lost", tmp_path / "kept"

    def save(path: Path, text: str) -> None:
        if path == lost:
            full()
        save_text(path, text)

    monkeypatch.setattr(reports_option, "save_text", save)
    reports = parse_reports([f"junit={lost},jsonl={kept_path}"])
    assert run_bench(BenchSettings(), as_json=False, reports=reports) == code
    out, err = capsys.readouterr()
    assert err == f"gpubalance: the junit report could not be written to {lost}: No space left on device\n"
    assert kept_path.exists()
    assert out


def test_probe_writes_them_too(tmp_path: Path, capsys: Streams) -> None:
    path, record = tmp_path / "probe.xml", tmp_path / "probe.json"
    arguments = ["probe", "--simulate", "h200x2", "--out", str(record), "--report", f"junit={path}"]
    assert entry.run([*arguments, "--report", "nagios=-"]) == 0
    assert capsys.readouterr().out.startswith("GPUBALANCE OK - 2 GPUs healthy")
    probe = load_record(record)
    assert path.read_text() == write("junit", probe, judged(probe))


def test_a_variable_gives_what_the_flag_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams) -> None:
    monkeypatch.setenv("GPUBALANCE_PROBE_REPORT", f"nagios=-,junit={tmp_path / 'a'}")
    assert entry.run(["probe", "--simulate", "h200x2"]) == 0
    assert capsys.readouterr().out.startswith("GPUBALANCE OK")
    assert (tmp_path / "a").exists()


@pytest.mark.parametrize("name", MACHINE)
def test_report_prints_any_of_them_with_the_exit_code_of_the_record(name: str, capsys: Streams) -> None:
    run = kept("h200x2-slow")
    assert entry.run(["report", str(KEPT["h200x2-slow"]), "--to", name]) == 1
    assert capsys.readouterr() == (write(name, run, judge(run)), "")
    assert entry.run(["report", str(KEPT_PROBES["h200x2-rival"]), "--to", name]) == 3


@pytest.mark.parametrize("name", MACHINE)
def test_hostile_names_reach_no_terminal(name: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    run = named(pair(100.0, 108.0), HOSTILE)
    save_text(tmp_path / "run.json", document_text(run, judge(run)))
    assert entry.run(["report", str(tmp_path / "run.json"), "--to", name]) == 3
    out, err = capsysbinary.readouterr()
    assert all(character.isprintable() or character == "\n" for character in out.decode())
    assert err == b""


def test_the_help_of_report_names_every_format(capsys: Streams) -> None:
    assert entry.run(["report", "--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in FORMATS if name not in shown] == []


@pytest.fixture
def plain_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a summary of one line, with a byte that is no text."""
    monkeypatch.setattr(github, "summary", lambda _record, _judgement: "# caf\udce9\n")


@pytest.mark.usefixtures("plain_summary")
def test_the_summary_is_appended_where_github_wants_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Streams
) -> None:
    place = tmp_path / "summary.md"
    place.write_text("earlier\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place))
    assert entry.run(["report", str(KEPT["h200x2-slow"]), "--to", "github"]) == 1
    assert place.read_text() == "earlier\n# caf\\udce9\n"
    assert capsys.readouterr().out.startswith("::notice title=gpubalance rehearsal::")


@pytest.mark.usefixtures("plain_summary")
def test_no_other_format_touches_the_summary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert entry.run(["report", str(KEPT["h200x2-slow"]), "--to", "junit"]) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("plain_summary")
def test_a_summary_that_cannot_be_written_is_said_and_is_no_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Streams
) -> None:
    run = pair(100.0, 100.0)
    save_text(tmp_path / "run.json", document_text(run, judge(run)))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert entry.run(["report", str(tmp_path / "run.json"), "--to", "github"]) == 3
    out, err = capsys.readouterr()
    assert out.startswith("::notice title=gpubalance pass::")
    assert err == f"gpubalance: the summary could not be written to {tmp_path}: Is a directory\n"


def test_outside_of_github_there_is_no_summary() -> None:
    run = pair(100.0, 100.0)
    assert append_summary({}, run, judge(run))

"""GitHub Actions: what becomes an annotation, how it is escaped, and a summary that is not too long."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.verdict import Verdict
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.reports.formats import judged
from gpubalance.reports.github import SUMMARY_LIMIT_BYTES, cut, github_text, summary
from tests.checks.probing.helpers import make_probe
from tests.checks.probing.test_kept_probes import KEPT as KEPT_PROBES
from tests.checks.probing.test_kept_probes import kept as kept_probe
from tests.reports.helpers import HOSTILE, KEPT, kept, named, pair

RECORDS: dict[str, Run | Probe] = {
    **{name: kept(name) for name in KEPT},
    **{f"probe {name}": kept_probe(name) for name in KEPT_PROBES},
    "hostile": named(pair(100.0, 108.0), HOSTILE),
}
COMMAND = re.compile(r"::(?P<level>error|warning|notice) title=(?P<title>[^:,\r\n]*)::(?P<text>[^\r\n]*)")
"""How a runner reads a line."""


def commands(text: str) -> list[tuple[str, str, str]]:
    matches = [COMMAND.fullmatch(line) for line in text.splitlines()]
    return [(m["level"], unquote(m["title"]), unquote(m["text"])) for m in matches if m is not None]


def told(*findings: Finding, verdict: Verdict = Verdict.PASS, probe: Probe | None = None) -> list[tuple[str, str, str]]:
    text = github_text(probe or make_probe(), ProbeJudgement(verdict, "in one sentence", findings, {}))
    assert len(text.splitlines()) == len(commands(text))
    return commands(text)


LEVELS = {
    "pass": (State.PASS, False, None),
    "info": (State.INFO, False, None),
    "skip": (State.SKIP, True, None),
    "warn": (State.WARN, False, "warning"),
    "fail": (State.FAIL, False, "error"),
    "not measured": (State.UNKNOWN, False, "notice"),
    "not measured, required": (State.UNKNOWN, True, "error"),
}


@pytest.mark.parametrize(("state", "required", "level"), LEVELS.values(), ids=LEVELS.keys())
def test_each_state_has_its_level(state: State, required: bool, level: str | None) -> None:
    shown = told(Finding("M2", state, "said", "GPU-1", "7", "0", ("two banks",), "replace it", required=required))
    text = "said\nGPU-1\nobserved: 7\nexpected: 0\ntwo banks\nnext: replace it"
    assert shown[1:] == ([] if level is None else [(level, "gpubalance M2", text)])


VERDICTS = {
    Verdict.PASS: ("notice", "gpubalance pass"),
    Verdict.WARN: ("warning", "gpubalance warn"),
    Verdict.FAIL: ("error", "gpubalance fail"),
    Verdict.INCONCLUSIVE: ("error", "gpubalance inconclusive"),
}


@pytest.mark.parametrize("verdict", Verdict)
def test_the_verdict_comes_first(verdict: Verdict) -> None:
    assert told(verdict=verdict) == [(*VERDICTS[verdict], "in one sentence")]


def test_a_verdict_that_a_finding_says_is_not_said_twice() -> None:
    shown = told(Finding("M2", State.FAIL, "in one sentence"), verdict=Verdict.FAIL)
    assert shown == [("error", "gpubalance M2", "in one sentence")]


def test_a_rehearsal_is_said_before_anything_else() -> None:
    shown = told(probe=make_probe(simulated="h200x2"))
    assert shown[0] == ("notice", "gpubalance rehearsal", "simulated: h200x2. This says nothing about the node.")


def test_text_and_properties_are_escaped_as_github_wants() -> None:
    (_, line) = github_text(
        make_probe(), ProbeJudgement(Verdict.PASS, "s", (Finding("a:b,c%", State.WARN, "50 %: a, b", "who"),), {})
    ).splitlines()
    assert line == "::warning title=gpubalance a%3Ab%2Cc%25::50 %25: a, b%0Awho"


@given(st.text(), st.text())
def test_no_text_begins_a_command_of_its_own(name: str, text: str) -> None:
    shown = told(Finding(name, State.FAIL, text, text, evidence=(text, "\n::error::forged")))
    assert [level for level, _, _ in shown] == (["error"] if text == "in one sentence" else ["notice", "error"])


@pytest.mark.parametrize("name", RECORDS)
def test_a_whole_record_is_readable_commands_and_as_many_as_it_has_bad_news(name: str) -> None:
    judgement = judged(RECORDS[name])
    text = github_text(RECORDS[name], judgement)
    assert len(commands(text)) == len(text.splitlines())
    assert all(character.isprintable() or character == "\n" for character in text)
    bad = [finding.id for finding in judgement.findings if finding.state in (State.FAIL, State.WARN, State.UNKNOWN)]
    titles = [title.removeprefix("gpubalance ") for _, title, _ in commands(text)]
    assert [title for title in titles if title in bad] == bad


def test_a_summary_is_the_markdown_report() -> None:
    pytest.importorskip("gpubalance.reports.markdown")
    run = kept("h200x2-slow")
    assert "rank 1 is 21.4 % slower than rank 0" in summary(run, judged(run))


NOTE = "\n\n(cut here: GitHub takes no more in one summary)\n"
CUTS = {
    "fits": ("one\ntwo\n", 8, "one\ntwo\n"),
    "one byte too long": ("one\n" * 20 + "x", 80, "one\n" * 7 + NOTE[1:]),
    "no whole line fits": ("x" * 100, 60, NOTE),
}


@pytest.mark.parametrize(("text", "limit", "wanted"), CUTS.values(), ids=CUTS.keys())
def test_a_long_summary_is_cut_at_a_line(text: str, limit: int, wanted: str) -> None:
    assert cut(text, limit) == wanted


@given(st.text(), st.integers(len(NOTE), 300))
def test_a_cut_summary_fits_and_is_a_beginning_of_whole_lines(text: str, limit: int) -> None:
    shown = cut(text, limit)
    assert len(shown.encode()) <= limit
    if shown != text:
        assert text.startswith(shown.removesuffix(NOTE))
        assert shown.endswith(NOTE)


def test_the_limit_leaves_room_for_what_stands_there_already() -> None:
    assert SUMMARY_LIMIT_BYTES < 2**20

"""The line of a monitoring plugin: one line, one bar, numbers that parse."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.verdict import Verdict
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run, Setting
from gpubalance.reports.formats import judged
from gpubalance.reports.nagios import nagios_text
from tests.checks.probing.helpers import make_probe
from tests.checks.probing.test_kept_probes import KEPT as KEPT_PROBES
from tests.checks.probing.test_kept_probes import kept as kept_probe
from tests.reports.helpers import HOSTILE, KEPT, kept, named, pair

RECORDS: dict[str, Run | Probe] = {
    **{name: kept(name) for name in KEPT},
    **{f"probe {name}": kept_probe(name) for name in KEPT_PROBES},
    "hostile": named(pair(100.0, 108.0), HOSTILE),
}
NUMBER = r"-?[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?"
RANGE = rf"({NUMBER}:?)?"
PERFDATA = re.compile(rf"'(?P<label>[a-z_]+)'=(?P<value>{NUMBER})(?P<unit>|ms|s)(;{RANGE}){{0,4}}")
LINE = re.compile(
    r"GPUBALANCE (?P<state>OK|WARNING|CRITICAL|UNKNOWN) - (?P<sentence>[^|\n]*) \| (?P<numbers>[^|\n]*)\n"
)


def parts(text: str) -> tuple[str, str, dict[str, str]]:
    match = LINE.fullmatch(text)
    assert match is not None
    numbers = {}
    for item in match["numbers"].split(" "):
        found = PERFDATA.fullmatch(item)
        assert found is not None, item
        numbers[found["label"]] = item.partition("=")[2]
    return match["state"], match["sentence"], numbers


def read(record: Run | Probe) -> tuple[str, str, dict[str, str]]:
    return parts(nagios_text(record, judged(record)))


STATES = {
    Verdict.PASS: "OK",
    Verdict.WARN: "WARNING",
    Verdict.FAIL: "CRITICAL",
    Verdict.INCONCLUSIVE: "UNKNOWN",
}


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_has_its_word(verdict: Verdict) -> None:
    findings = (Finding("M2", State.FAIL, "m"), Finding("M2", State.WARN, "m"), Finding("X1", State.UNKNOWN, "m"))
    state, sentence, numbers = parts(nagios_text(make_probe(), ProbeJudgement(verdict, "so it is", findings, {})))
    assert (state, sentence) == (STATES[verdict], "so it is")
    assert numbers == {"fail": "1;;;0", "not_measured": "1;;;0", "warn": "1;;;0", "duration": "1s;;;0"}


def test_the_numbers_of_a_run_by_hand() -> None:
    state, sentence, numbers = read(pair(100.0, 120.0))
    # Compute of 100 and 120 ms, transfer of 20: 120/140 is left of the step rate.
    assert state == "CRITICAL"
    assert sentence.startswith("rank 1 is 20 % slower than rank 0")
    assert numbers["balance"] == "85.71;;;0;100"
    assert numbers["step"] == "140ms;;;0"
    assert numbers["lost"] == "20ms;;;0"
    assert numbers["duration"] == "30s;;;0"


def test_a_score_that_was_asked_for_is_the_critical_range() -> None:
    run = pair(100.0, 100.0, settings={"min_score": Setting(value=95.0, origin="flag")})
    assert read(run)[2]["balance"] == "100.00;;95:;0;100"


def test_a_rehearsal_says_that_it_says_nothing_about_the_node() -> None:
    assert read(make_probe(simulated="h200x2"))[1].endswith("(simulated: h200x2; says nothing about the node)")


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_is_one_line_that_a_terminal_shows(name: str) -> None:
    record = RECORDS[name]
    state, _, numbers = read(record)
    assert state == STATES[judged(record).verdict]
    assert ("balance" in numbers) == isinstance(record, Run)
    assert nagios_text(record, judged(record)).removesuffix("\n").isprintable()


@given(st.text())
def test_no_sentence_begins_the_numbers_or_a_second_line(sentence: str) -> None:
    text = nagios_text(make_probe(), ProbeJudgement(Verdict.FAIL, sentence, (), {}))
    assert parts(text)[0] == "CRITICAL"

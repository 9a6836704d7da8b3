"""Markdown for GitHub: the tables are tables, text from outside is nothing but text, and it fits into a comment."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.verdict import Verdict, judge
from gpubalance.record.file import load_record
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.reports.formats import FORMATS, judged, write
from gpubalance.reports.markdown import LARGEST, LONGEST_CELL, escaped, markdown_text
from gpubalance.reports.printable import printable
from gpubalance.testing.runs import make_attempt, make_run, steady
from tests.checks.probing.helpers import make_probe
from tests.reports.helpers import HOSTILE, kept, named, pair, row
from tests.reports.test_html import FULL, busy_load
from tests.support import ROOT

KEPT = sorted((ROOT / "examples/runs").glob("*.json")) + sorted((ROOT / "examples/probes").glob("*.json"))
OURS = {"html", "head", "body", "h3", "h4", "p", "br", "b", "code", "span", "details", "summary", "table", "thead",
        "tbody", "tr", "th", "td"}  # fmt: skip
BLANK = "\u200b"
"""The space without width that keeps GitHub from calling people."""


def comment(record: Run | Probe) -> str:
    return markdown_text(record, judged(record))


def tree(markdown: str) -> Element:
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)
    return html5lib.parse(html, namespaceHTMLElements=False)


def text_of(element: Element) -> str:
    return "".join(element.itertext()).replace(BLANK, "")


def tables(markdown: str) -> list[list[list[str]]]:
    return [[[text_of(cell) for cell in row] for row in table.iter("tr")] for table in tree(markdown).iter("table")]


def table(markdown: str, *heading: str) -> list[list[str]]:
    return next(rows for rows in tables(markdown) if rows[0][: len(heading)] == list(heading))


def rendered(text: str) -> str:
    """What a reader sees of an escaped text in a cell."""
    return tables(f"| a |\n| --- |\n| x{escaped(text)}x |\n")[0][1][0]


class TestComment:
    @pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
    def test_every_kept_record_fits_and_is_the_same_each_time(self, path: Path) -> None:
        record = load_record(path)
        text = comment(record)
        assert text == comment(record)
        assert len(text.encode()) < LARGEST
        assert "left out" not in text.lower()

    @pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
    def test_every_row_has_as_many_cells_as_its_head(self, path: Path) -> None:
        for line in comment(load_record(path)).splitlines():
            assert not line.startswith("|") or line.endswith("|")
        for rows in tables(comment(load_record(path))):
            assert len({len(row) for row in rows}) == 1

    def test_it_is_what_the_table_of_formats_names(self) -> None:
        assert FORMATS["markdown"] == "gpubalance.reports.markdown:markdown_text"
        run = kept("h200x2-slow")
        assert write("markdown", run, judge(run)) == comment(run)

    @pytest.mark.parametrize(
        ("verdict", "word"),
        [
            (Verdict.PASS, "PASS"),
            (Verdict.WARN, "WARN"),
            (Verdict.FAIL, "FAIL"),
            (Verdict.INCONCLUSIVE, "NO VERDICT"),
        ],
    )
    def test_the_verdict_is_the_heading(self, verdict: Verdict, word: str) -> None:
        run = pair(100.0, 100.0)
        text = markdown_text(run, replace(judge(run), verdict=verdict, sentence="a sentence"))
        assert text.startswith(f"### {word}: a sentence\n")

    @pytest.mark.parametrize("record", [pair(100.0, 100.0), make_probe()], ids=["run", "probe"])
    def test_no_field_of_a_finding_is_lost(self, record: Run | Probe) -> None:
        text = markdown_text(record, replace(judged(record), findings=(FULL,)))  # type: ignore[type-var]
        assert table(text, "state", "check")[1] == [
            "warn (required)", "some_check", "the messagethe subject- first evidence- second evidence",
            "the observed", "the expected", "the next step",
        ]  # fmt: skip

    def test_passed_and_not_applicable_are_folded_and_nothing_else(self) -> None:
        run = pair(100.0, 100.0)
        findings = tuple(Finding(f"c{state.value}", state, "m") for state in State)
        text = markdown_text(run, replace(judge(run), findings=findings))
        shown, folded = (rows for rows in tables(text) if rows[0][0] == "state")
        assert [row[0] for row in shown[1:]] == ["info", "warn", "fail", "unknown"]
        assert [row[0] for row in folded[1:]] == ["pass", "skip"]
        assert "<summary>1 pass, 1 skip</summary>" in text

    def test_the_ranks(self) -> None:
        rows = table(comment(pair(100.0, 120.0)), "rank", "compute, ms")
        assert rows[1][:5] == ["0", "100.00", "20.00", "0.00", "1.00"]
        assert rows[2][:5] == ["1", "120.00", "0.00", "20.00", "0.83"]

    def test_a_probe_shows_devices_matrix_and_load(self) -> None:
        text = comment(make_probe(load=busy_load()))
        assert table(text, "nvml", "cuda", "memory, GiB")[1][:4] == ["0", "0", "140", "0.0"]
        assert table(text, "to")[1] == ["GPU 0", ".", "NVL"]
        assert [row[0] for row in table(text, "device", "product, TFLOP/s")] == ["device", "GPU 0", "GPU 1"]

    def test_what_was_played_is_said(self) -> None:
        assert "<b>Injected on purpose: sleep." in comment(pair(100.0, 120.0, injected=["sleep"]))
        assert "<b>Simulated: dead." in comment(make_probe().model_copy(update={"simulated": "dead"}))


class TestRoom:
    def test_a_thousand_ranks_and_collectives_keep_the_findings_and_lose_tables(self) -> None:
        run = make_run([make_attempt(steady([100.0] * 1000, blocks=2, steps=2))], collectives=[row()] * 1000)
        text = comment(run)
        assert len(text.encode()) <= LARGEST
        assert re.search(r"\n[1-9] parts left out for want of room; gpubalance report --to html", text)
        for finding in judge(run).findings:
            assert escaped(finding.message) in text

    def test_too_many_findings_keep_the_worst_and_count_the_others(self) -> None:
        run = pair(100.0, 100.0)
        fails = tuple(Finding("c", State.FAIL, f"fail {number}") for number in range(3))
        warns = tuple(Finding("c", State.WARN, f"warn {number} " + "x" * 200) for number in range(1000))
        text = markdown_text(run, replace(judge(run), findings=(*fails, *warns)))
        rows = tables(text)[0][1:]
        assert len(text.encode()) <= LARGEST
        assert [row[2] for row in rows[:3]] == ["fail 0", "fail 1", "fail 2"]
        assert f"of findings {1003 - len(rows)} warn." in text
        assert len(rows) > 100

    def test_not_even_a_page_in_every_field_breaks_the_limit(self) -> None:
        run = pair(100.0, 100.0)
        long = "$" * 5000
        finding = Finding(long, State.FAIL, long, long, long, long, (long,) * 5000, long)
        text = markdown_text(run, replace(judge(run), findings=(finding,) * 3, sentence=long))
        assert len(text.encode()) <= LARGEST
        assert text.startswith("### PASS: ")
        assert "of findings 3 fail." in text

    def test_a_long_value_says_how_long_it_is(self) -> None:
        assert escaped("x" * LONGEST_CELL) == "x" * LONGEST_CELL
        assert escaped("x" * (LONGEST_CELL + 1)) == "x" * LONGEST_CELL + " ... (601 characters)"

    def test_much_evidence_is_counted(self) -> None:
        run = pair(100.0, 100.0)
        for count, more in ((20, None), (21, "- and 1 more")):
            finding = Finding("c", State.FAIL, "m", evidence=tuple(f"e{number}" for number in range(count)))
            cell = tables(markdown_text(run, replace(judge(run), findings=(finding,))))[0][1][2]
            assert ("- and" in cell) is (more is not None)
            assert (more or "- e19") in cell


class TestHostile:
    @pytest.mark.parametrize(
        "text",
        [
            "a|b", "a\\|b", "a\\", "`code`", "``", "**bold**", "_it_", "~~gone~~", "[x](http://e.vil)", "![i](u)",
            "<script>alert(1)</script>", "<!-- c", "&lt;", "<img src=x onerror=y>", "$a$ and $b$", "http://e.vil/x",
            "www.e.vil", "@somebody", "#12", "a@b.cc", "</details>", "]]>", "![x][y]", "<b>", "&#64;team",
        ],
    )  # fmt: skip
    def test_a_reader_sees_the_text_and_nothing_else(self, text: str) -> None:
        assert rendered(text) == f"x{text}x"

    @given(st.text(max_size=100))
    def test_any_text_is_shown_as_it_is(self, text: str) -> None:
        assert rendered(text) == f"x{printable(text)}x".replace(BLANK, "")

    @pytest.mark.parametrize("text", ["@somebody", "@org/team", "cc @a @b", "#12", "o/r#3", "me@home.org"])
    def test_nobody_is_called(self, text: str) -> None:
        html = MarkdownIt("commonmark").render(escaped(text))
        assert not re.search(r"[@#][\w-]", re.sub(r"<[^>]*>", "", html))

    @pytest.mark.parametrize("text", ["http://e.vil", "https://e.vil", "www.e.vil", "ftp://e.vil"])
    def test_nothing_becomes_a_link(self, text: str) -> None:
        assert not re.search(r"://|www\.", MarkdownIt("commonmark").render(escaped(text)))

    def test_records_with_hostile_names_have_only_our_elements(self) -> None:
        run = named(kept("h200x2-healthy"), HOSTILE + " | @x `")
        probe = make_probe()
        assert probe.node is not None
        devices = [device.model_copy(update={"name": HOSTILE, "uuid": "|@me|"}) for device in probe.node.devices]
        node = probe.node.model_copy(update={"devices": devices, "hostname": HOSTILE, "environment": {"A|": HOSTILE}})
        for record in (run, probe.model_copy(update={"node": node, "simulated": HOSTILE})):
            text = comment(record)
            assert {str(element.tag) for element in tree(text).iter()} <= OURS
            assert not [c for c in text if not c.isprintable() and c != "\n"]
            assert not re.search(r"@\w", text)
            assert all(len({len(row) for row in rows}) == 1 for rows in tables(text))
            text.encode()

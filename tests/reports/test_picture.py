"""The report as a picture that can be shown anywhere: valid, quiet, and the same each time."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from gpubalance.checks.finding import State
from gpubalance.checks.verdict import Verdict
from gpubalance.record.run import Run
from gpubalance.reports.fold import Line
from gpubalance.reports.picture import STYLES, svg_text
from tests.reports.helpers import ESCAPE, HOSTILE, KEPT, kept, named, pair, styled
from tests.support import ROOT

RUNS: dict[str, Run] = {
    **{name: kept(name) for name in KEPT},
    "eight": pair(*[100.0] * 7, 120.0),
    "hostile": named(pair(100.0, 108.0), HOSTILE),
}
EVERY = pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))


def picture(run: Run) -> str:
    return svg_text(styled(run), "gpubalance bench")


def tree(svg: str) -> ET.Element:
    return ET.fromstring(svg.encode())


def shown(svg: str) -> str:
    """All text of a picture, without any white space."""
    texts = (text for element in tree(svg).iter() if element.tag.endswith("}text") for text in element.itertext())
    return re.sub(r"\s", "", "".join(texts))


@EVERY
def test_a_picture_is_valid_xml_and_an_svg(run: Run) -> None:
    assert tree(picture(run)).tag == "{http://www.w3.org/2000/svg}svg"


@EVERY
def test_the_same_run_gives_the_same_bytes(run: Run) -> None:
    assert picture(run) == picture(run)


@EVERY
def test_a_picture_runs_no_script_and_asks_no_network(run: Run) -> None:
    root = tree(picture(run))
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names <= {"svg", "style", "defs", "clipPath", "rect", "text", "g", "circle"}
    values = [value for element in root.iter() for value in element.attrib.values()]
    assert [value for value in values if "//" in value or "javascript:" in value] == []
    attributes = {name.rpartition("}")[2] for element in root.iter() for name in element.attrib}
    assert attributes & {"href", "src", "onload", "onclick"} == set()
    styles = "".join(element.text or "" for element in root.iter() if element.tag.endswith("}style"))
    assert styles
    assert re.findall(r"@font-face|@import|url\(|http", styles) == []


@EVERY
def test_every_word_of_the_report_is_in_the_picture(run: Run) -> None:
    text = shown(picture(run))
    assert [line.text for line in styled(run) if re.sub(r"\s", "", line.text) not in text] == []


def test_markup_and_escape_sequences_in_a_name_are_text_and_nothing_else() -> None:
    svg = picture(RUNS["hostile"])
    assert ESCAPE not in svg
    assert "<script>" not in svg
    assert r"\x1b[31m" in shown(svg)
    assert "</text><script>&amp;" in shown(svg)


def test_text_in_square_brackets_is_no_markup() -> None:
    assert "[bold]shards[4096,0][/bold]" in shown(svg_text([Line("[bold]shards [4096, 0][/bold]")], "t"))


def test_every_verdict_has_a_colour_and_plain_lines_have_none() -> None:
    assert set(STYLES) == {verdict.value for verdict in Verdict} | {""}
    assert len({STYLES[verdict.value] for verdict in Verdict}) == len(Verdict)
    assert STYLES[""] == ""


def test_only_the_verdict_is_bold() -> None:
    lines = [Line("one"), Line("FAIL  two", State.FAIL.value), Line("three")]
    svg = svg_text(lines, "t")
    bold = set(re.findall(r"\.(gpubalance-r\d+) \{[^}]*font-weight: bold", svg))
    words = [e.text for e in tree(svg).iter() if e.tag.endswith("}text") and e.get("class") in bold]
    assert [(word or "").replace("\xa0", " ") for word in words] == ["FAIL  two"]


def test_the_kept_picture_is_that_of_the_kept_run() -> None:
    run = kept("h200x2-healthy")
    svg = svg_text(styled(run, saved="h200x2-healthy.json"), "gpubalance bench")
    saved = (ROOT / "examples/runs/h200x2-healthy.svg").read_text()
    assert shown(saved) == shown(svg)

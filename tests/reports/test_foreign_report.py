"""What `gpubalance compare` prints beside a log."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt

from gpubalance.analysis.foreign import compare_foreign
from gpubalance.checks.foreign import ForeignJudgement, judge_foreign
from gpubalance.readers.nccl_tests import read_nccl_tests
from gpubalance.readers.nvbandwidth import read_nvbandwidth
from gpubalance.record.foreign import Foreign
from gpubalance.record.run import Run
from gpubalance.reports.compare_markdown import foreign_markdown
from gpubalance.reports.foreign_report import foreign_lines, foreign_text
from tests.analysis.test_foreign import MIB, our_row, probe, run_of
from tests.readers.helpers import COPIES, REAL

GIB = 2**30


def rows() -> Iterator[Run]:
    yield run_of(
        our_row(32 * MIB, 137.5), our_row(8192, 36.72), our_row(2 * GIB, 6300.0), our_row(8192, 20.0, mode="graph")
    )


def judged(run: Run, log: Foreign) -> ForeignJudgement:
    return judge_foreign(compare_foreign(run, log), run, log_is_base=True)


@pytest.fixture
def collectives() -> ForeignJudgement:
    return judged(next(rows()), read_nccl_tests("log", REAL))


@pytest.fixture
def copies() -> ForeignJudgement:
    return judged(run_of(probes=[probe(0, 55.0), probe(1, 55.3)]), read_nvbandwidth("log", COPIES))


def text_of(judgement: ForeignJudgement) -> str:
    return "\n".join(line.text for line in foreign_lines(judgement, "log.txt", "run.json"))


TABLE = """\
                log    log       run    run  ratio
                 us   GB/s        us   GB/s
all_reduce in place, float32, 2 ranks
  8 KiB *     18.79   0.44     36.72   0.22  0.512
  32 MiB     138.04 243.07    137.50 244.03  1.004
  2 GiB     6329.09 339.30   6300.00 340.87  1.005
ratio: run / log, above 1 the run is faster
*: shown and not judged (below 1 MiB, or replayed from a CUDA graph)"""


def squeezed(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_table_stands_side_by_side(collectives: ForeignJudgement) -> None:
    lines, table = squeezed(text_of(collectives)), squeezed(TABLE)
    begin = lines.index(table[0])
    assert lines[begin : begin + len(table)] == table


def test_both_sides_what_is_unlike_and_what_is_left_out_are_told(collectives: ForeignJudgement) -> None:
    text = " ".join(text_of(collectives).split())
    assert text.startswith("PASS the run has 100.4 % to 100.5 % of the bandwidth of nccl-tests (2 values)")
    assert "BASE log.txt: a log of nccl-tests NEW run.json: a run of 2026-01-01T00:00:00+00:00" in text
    assert "NCCL library: 2.28.9 in the log, not known in the run" in text
    assert "the log: built against NCCL 2.32.3, loaded 2.28.9" in text
    assert "22 values of the log (reduce_scatter, send_recv): the run has no row of it" in text
    assert "1 value of the run (all_reduce): graph mode in the run, eager mode in the log" in text


def test_copies_have_no_columns_of_time(copies: ForeignJudgement) -> None:
    lines = squeezed(text_of(copies))
    assert ["GPU", "0", "55.20", "55.00", "0.996"] in lines
    assert ["GB/s", "GB/s"] in lines


def test_no_line_is_wider_than_a_terminal_and_all_is_ascii(
    collectives: ForeignJudgement, copies: ForeignJudgement
) -> None:
    for judgement in (collectives, copies):
        text = text_of(judgement)
        assert text.isascii()
        assert max(map(len, text.splitlines())) <= 80


def test_json_is_one_strict_document_with_ratios(collectives: ForeignJudgement) -> None:
    text = foreign_text(collectives, "log.txt", "run.json")
    document = json.loads(text, parse_constant=pytest.fail)
    pairs = document["judgement"]["comparison"]["pairs"]
    assert text.count("\n") == 1
    assert [(pair["ratio"], pair["judged"]) for pair in pairs] == [(1.003927, True), (0.51171, False), (1.004617, True)]
    assert document["judgement"]["verdict"] == "pass"


def test_markdown_has_the_same_tables(collectives: ForeignJudgement, copies: ForeignJudgement) -> None:
    html = MarkdownIt("gfm-like", {"linkify": False}).render(foreign_markdown(collectives, "log.txt", "run.json"))
    assert html.count("<table>") == 2  # values, and findings that passed
    assert "<td>32 MiB</td>" in html
    assert "244.03" in html
    text = foreign_markdown(copies, "log.txt", "run.json")
    assert "| device | log, GB/s | run, GB/s | ratio |" in text


def test_text_from_a_log_cannot_steer_a_terminal_or_markdown() -> None:
    hostile = REAL.replace(b"NVIDIA H200", b"\x1b]0;x\x07<b>|H200").replace(b"NVIDIA", b"")
    judgement = judged(next(rows()), read_nccl_tests("log", hostile))
    assert "\x1b" not in text_of(judgement)
    assert "\x07" not in text_of(judgement)
    assert "<b>|H200" not in foreign_markdown(judgement, "log.txt", "run.json")

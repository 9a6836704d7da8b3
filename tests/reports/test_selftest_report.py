"""The table that people read, and the same as markdown."""

from __future__ import annotations

import random
import re

from markdown_it import MarkdownIt

from gpubalance.checks.selftest.verdict import judge_selftest
from gpubalance.record.selftest import Selftest
from gpubalance.reports.selftest_report import selftest_lines, selftest_markdown
from tests.reports.selftest_helpers import (
    all_right,
    compute,
    healthy,
    held,
    make_pass,
    make_selftest,
    right_and_wrong,
)

GIB = 2**30


def text_of(record: Selftest, saved: str | None = "selftest.json") -> str:
    return "".join(f"{line.text}\n" for line in selftest_lines(record, judge_selftest(record), saved))


def cells_of(text: str, title: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(title))
    return re.split(r"  +", line.strip())


def test_the_first_line_is_the_verdict() -> None:
    assert text_of(all_right()).startswith(
        "PASS  the fault played here was named rightly, nobody in 2 healthy passes\n"
    )
    assert text_of(right_and_wrong()).startswith("FAIL  1 of 3 rows are wrong; compute +8 %: did not name rank 0\n")


def test_a_line_for_each_row_says_what_was_played_and_what_was_named() -> None:
    text = text_of(right_and_wrong())
    assert cells_of(text, "healthy") == ["healthy x 3", "nobody", "nobody", "-", "-", "-", "right"]
    assert cells_of(text, "compute +20 %") == [
        "compute +20 %", "1 device work", "1", "device work", "14.2", "14.2", "right",
    ]  # fmt: skip
    missed = cells_of(text, "compute +8 %")
    assert missed[:4] == ["compute +8 %", "0 device work", "nobody", "-"]
    assert missed[-1] == "wrong"
    assert "wrong in pass 3 (compute +8 % on rank 0): did not name rank 0" in text


def test_both_looks_at_a_wrong_row_are_shown() -> None:
    record = right_and_wrong()
    again = [healthy(5).model_copy(update={"again": True}), compute(6, 0, 8, again=True)]
    passes = [*record.passes, make_pass(5, [100.0, 100.0]), make_pass(6, [108.0, 100.0])]
    text = text_of(record.model_copy(update={"passes": passes, "played": [*record.played, *again]}))
    lines = text.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("compute +8 %"))
    assert lines[place].endswith("wrong")
    assert lines[place + 1].startswith("  once more")
    assert lines[place + 1].endswith("right")


def test_rates_are_told_with_their_bounds_and_the_seed_with_what_it_does() -> None:
    text = text_of(right_and_wrong()).replace("\n", " ")
    assert "False alarms: 0 of 3 healthy passes (at most 63.2 %)" in text
    assert "Missed: 1 of 2 faults (at most 97.5 %). Wrong class: 0 of 1 named (at most 95.0 %); no class: 0." in text
    assert "--seed 4711 draws the same ranks" in text
    assert "From the begin of the first pass to what causes are told by: 15.0 s." in text
    assert "Skipped: half (half of 2 ranks is one: the same as compute)." in text
    assert "Saved: selftest.json" in text


def test_rows_played_several_times_are_counted() -> None:
    times = [[100.0, 100.0], [100.0, 120.0], [100.0, 120.0], [100.0, 100.0], [100.0, 100.0]]
    passes = [make_pass(number, each) for number, each in enumerate(times)]
    played = [healthy(0), compute(1, 1, 20), compute(2, 1, 20), compute(3, 0, 20), healthy(4)]
    text = text_of(make_selftest(passes, played))
    assert cells_of(text, "compute") == ["compute +20 % x 3", "device work", "2/3", "2/3", "14.2", "14.2", "1 wrong"]


def test_many_slow_ranks_are_counted_and_every_line_fits() -> None:
    ranks = [1, 3, 5, 7]
    times = [120.0 if rank in ranks else 100.0 for rank in range(8)]
    half = compute(1, 1, 20).model_copy(update={"row": "half", "title": "half slow 20 %", "ranks": ranks})
    record = make_selftest(
        [make_pass(0, [100.0] * 8), make_pass(1, times), make_pass(2, [100.0] * 8)], [healthy(0), half, healthy(2)]
    )
    text = text_of(record)
    assert cells_of(text, "half slow 20 %")[:4] == ["half slow 20 %", "each device work", "4 ranks", "device work"]


def test_the_widest_of_all_cells_together_fit() -> None:
    from gpubalance.checks.selftest.look import Named
    from gpubalance.checks.selftest.rows import KINDS, WORDS, expected_class
    from gpubalance.checks.selftest.score import Loss, Outcome
    from gpubalance.reports.rank_table import aligned
    from gpubalance.reports.selftest_table import HEADINGS, _line
    from gpubalance.session.selftest_plan import Here, matrix
    from gpubalance.settings import CPU_MARGIN, GPU_MARGIN

    rows = []
    for ranks, backend, margin in ((8, "nccl", GPU_MARGIN), (8, "gloo", CPU_MARGIN)):
        here = Here(ranks, backend, margin, healthy_ms=123.456)
        for row in matrix(here, quick=False, wanted=None, generator=random.Random(0))[0]:
            kind = KINDS[row.row.partition("_")[0]]
            for cause in [*WORDS, None]:
                named = (Named(7, "slow", cause),)
                rows.append(_line(Outcome(
                    number=1, row=row.row, title=row.title, ranks=row.ranks, expected=expected_class(kind), again=False,
                    named=named, state="fail", right=False, reason="x", rank_right=True, others_named=(),
                    majority_slow=0, loss=Loss(0.999, -0.111), communication_bound=False,
                ), row.title))  # fmt: skip
    assert max(map(len, aligned([*HEADINGS, *rows], names=4))) <= 80


def records() -> list[Selftest]:
    memory = compute(1, 0, 20).model_copy(update={"row": "memory", "title": "memory 60 %"})
    skewed = make_selftest([held(0, [6 * GIB, 6 * GIB]), held(1, [90 * GIB, 6 * GIB])], [healthy(0), memory])
    stopped = all_right().model_copy(update={"interrupted_by": 2})
    return [all_right(), right_and_wrong(), skewed, stopped, make_selftest([], [])]


def test_no_line_is_wider_than_80_columns() -> None:
    for record in records():
        assert all(len(line) <= 80 and line.isascii() for line in text_of(record).splitlines())


def test_a_class_is_shown_in_words() -> None:
    assert cells_of(text_of(records()[2]), "memory 60 %")[1:4] == ["0 memory skew", "0", "memory skew"]


def test_nothing_measured_still_says_why() -> None:
    text = text_of(make_selftest([], []), None)
    assert text.startswith("NO VERDICT  no fault was played")
    assert "Saved" not in text


def test_hostile_titles_draw_no_table_of_their_own() -> None:
    record = right_and_wrong()
    title = "x\x1b[31m | y\n# z <b>"
    hostile = record.model_copy(update={"played": [each.model_copy(update={"title": title}) for each in record.played]})
    assert all(line.text.isprintable() for line in selftest_lines(hostile, judge_selftest(hostile), None))
    markdown = selftest_markdown(hostile, judge_selftest(hostile))
    html = MarkdownIt("commonmark").enable("table").render(markdown)
    assert "<h1>" not in html
    assert html.count("<tr>") == 1 + 3  # heading, healthy, two rows


def test_markdown_has_the_same_table() -> None:
    record = right_and_wrong()
    html = MarkdownIt("commonmark").enable("table").render(selftest_markdown(record, judge_selftest(record)))
    assert "FAIL: 1 of 3 rows are wrong" in html
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    assert cells[7:14] == ["compute +20 %", "1 device work", "1", "device work", "14.2", "14.2", "right"]

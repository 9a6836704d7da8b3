"""What `gpubalance compare` prints when one side is a log of nccl-tests or nvbandwidth. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpubalance.analysis.foreign import ForeignComparison
from gpubalance.analysis.foreign_pairs import PLACEMENT_WORDS, Pair, Unpaired, What
from gpubalance.checks.compare_rules import TITLES
from gpubalance.checks.finding import State, counted
from gpubalance.checks.foreign import ForeignJudgement
from gpubalance.message_sizes import size_text
from gpubalance.reports.compare_report import as_json, finding_lines
from gpubalance.reports.document import plain
from gpubalance.reports.fold import WIDTH, Line, paragraph, put_together
from gpubalance.reports.printable import printable
from gpubalance.reports.rank_table import aligned
from gpubalance.reports.table import NONE, Column, Table
from gpubalance.reports.terminal import WORDS

FOREIGN_SCHEMA = 1
ALWAYS = ("fail_on", "agreement", "comparable")
SHOWN = (State.FAIL, State.UNKNOWN, State.WARN, State.INFO)
LEGEND = "ratio: run / log, above 1 the run is faster"
HEADINGS: tuple[tuple[str, ...], ...] = (("", "log", "run", "ratio"), ("", "GB/s", "GB/s", ""))
TIMED_HEADINGS = (("", "log", "log", "run", "run", "ratio"), ("", "us", "GB/s", "us", "GB/s", ""))
UNGATED = "*: shown and not judged (below 1 MiB, or replayed from a CUDA graph)"


def foreign_lines(judgement: ForeignJudgement, base: str, new: str, width: int = WIDTH) -> list[Line]:
    """The whole report; `base` and `new` say where both sides come from."""
    sections = [
        [paragraph(f"{WORDS[judgement.verdict]}  {judgement.sentence}", " " * 6, judgement.verdict.value)],
        [paragraph(line, " " * 8) for line in foreign_sides(judgement, base, new)],
        list(_findings(judgement)),
        [Line(text) for text in _values(judgement.comparison)],
        [paragraph(line, " " * 2) for line in left_out(judgement.comparison)],
    ]
    return put_together(sections, width)


def foreign_text(judgement: ForeignJudgement, base: str, new: str) -> str:
    """One strict JSON document; each pair with its ratio."""
    document = {"schema_version": FOREIGN_SCHEMA, "base": base, "new": new, "judgement": plain(judgement)}
    pairs = judgement.comparison.pairs
    document["judgement"]["comparison"]["pairs"] = [
        {**plain(pair), "ratio": plain(pair.ratio), "judged": pair.gated} for pair in pairs
    ]
    return as_json(document)


def foreign_tables(comparison: ForeignComparison) -> list[Table]:
    """The same numbers for formats that have tables."""
    timed = (Column("size", words=True), Column("log", "us"), Column("log", "GB/s"), Column("run", "us"),
             Column("run", "GB/s"), Column("ratio"))  # fmt: skip
    copied = (Column("device", words=True), Column("log", "GB/s"), Column("run", "GB/s"), Column("ratio"))
    return [
        Table(
            title,
            copied if pairs[0].what is None else timed,
            tuple(_cells(pair) for pair in pairs),
            (LEGEND,) if all(pair.gated for pair in pairs) else (LEGEND, UNGATED),
        )
        for title, pairs in _groups(comparison)
    ]


def foreign_sides(judgement: ForeignJudgement, base: str, new: str) -> Iterator[str]:
    """Where both sides come from, under what they did not measure alike, and what the log says of itself."""
    tool = judgement.comparison.tool
    log, ours = f"a log of {tool}", f"a run of {judgement.comparison.run_started}"
    first, second = (log, ours) if judgement.log_is_base else (ours, log)
    texts = [f"BASE  {base}: {first}", f"NEW   {new}: {second}"]
    texts += [f"      {u.what}: {u.theirs} in the log, {u.ours} in the run" for u in judgement.comparison.unlike]
    texts += [f"      the log: {remark}" for remark in judgement.comparison.remarks]
    yield from texts


def _findings(judgement: ForeignJudgement) -> Iterator[Line]:
    for found in judgement.findings:
        if found.state in SHOWN or found.id in ALWAYS:
            yield from finding_lines(found)


def _groups(comparison: ForeignComparison) -> list[tuple[str, list[Pair]]]:
    """Pairs under one title: a collective in one placement and mode, or one kind of copy."""
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in comparison.pairs:
        groups[_title(pair.metric, pair.what)].append(pair)
    return [(title, sorted(pairs, key=_size)) for title, pairs in groups.items()]


def _size(pair: Pair) -> int:
    return pair.what.size_bytes if pair.what is not None else 0


def _title(metric: str, what: What | None) -> str:
    if what is None:
        return f"{metric}: {TITLES[metric]}"
    mode = "" if what.mode == "eager" else f", {what.mode}"
    ranks = "" if what.ranks is None else f", {counted(what.ranks, 'rank')}"
    return f"{what.collective} {PLACEMENT_WORDS.get(what.placement, what.placement)}, {what.dtype}{ranks}{mode}"


def _values(comparison: ForeignComparison) -> list[str]:
    """Columns are as wide in all groups."""
    if not comparison.pairs:
        return []
    timed = any(pair.what is not None for pair in comparison.pairs)
    rows = [*(TIMED_HEADINGS if timed else HEADINGS)]
    headings: dict[int, str] = {}
    for title, pairs in _groups(comparison):
        headings[len(rows)] = printable(title)
        rows += [_indented(_cells(pair)) for pair in pairs]
    lines: list[str] = []
    for number, line in enumerate(aligned(rows, names=1)):
        lines += [headings[number]] if number in headings else []
        lines.append(line)
    legend = [LEGEND] if all(pair.gated for pair in comparison.pairs) else [LEGEND, UNGATED]
    if any(pair.repeats > 1 for pair in comparison.pairs):
        legend.append("log: the median, where it has a row several times")
    return [*lines, *legend]


def _indented(cells: Sequence[str]) -> tuple[str, ...]:
    return (f"  {cells[0]}", *cells[1:])


def _cells(pair: Pair) -> tuple[str, ...]:
    ratio = NONE if pair.ratio is None else f"{pair.ratio:.3f}"
    mark = "" if pair.gated else " *"
    if pair.what is None:
        return pair.place, f"{pair.theirs:.2f}", f"{pair.ours:.2f}", ratio
    numbers = (_us(pair.theirs_us), f"{pair.theirs:.2f}", _us(pair.ours_us), f"{pair.ours:.2f}")
    return (size_text(pair.what.size_bytes) + mark, *numbers, ratio)


def _us(time_us: float | None) -> str:
    return NONE if time_us is None else f"{time_us:.2f}"


def left_out(comparison: ForeignComparison) -> Iterator[str]:
    """What could not be held against anything, and why."""
    groups: dict[tuple[str, str], list[Unpaired]] = defaultdict(list)
    for each in comparison.unpaired:
        groups[each.side, each.reason].append(each)
    for (side, reason), members in groups.items():
        names = ", ".join(dict.fromkeys(each.what for each in members))
        values = counted(sum(each.count for each in members), "value")
        yield f"not compared: {values} of the {side} ({names}): {reason}"

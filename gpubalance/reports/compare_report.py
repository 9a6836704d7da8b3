"""What `gpubalance compare` and `baseline` print: are two sides comparable, what changed, the verdict. Pure."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpubalance.analysis.compare import MORE_IS_BETTER, Change, Comparison
from gpubalance.checks.compare import ComparisonJudgement
from gpubalance.checks.compare_rules import TITLES, UNITS, place_of, scale_of
from gpubalance.checks.finding import Finding, State, counted
from gpubalance.record.base import Record
from gpubalance.record.baselines import Baseline, Fact, Setup
from gpubalance.reports.document import plain
from gpubalance.reports.fold import WIDTH, Line, paragraph, put_together
from gpubalance.reports.printable import printable
from gpubalance.reports.rank_table import aligned
from gpubalance.reports.terminal import WORDS

COMPARISON_SCHEMA = 1
SHOWN = (State.FAIL, State.UNKNOWN, State.WARN, State.INFO)
NONE = "-"


def compare_lines(judgement: ComparisonJudgement, base: str, new: str, width: int = WIDTH) -> list[Line]:
    """The whole report; `base` and `new` say where both sides come from."""
    comparison = judgement.comparison
    word = WORDS[judgement.verdict] if comparison is not None else "NOTHING TO COMPARE WITH"
    sections = [
        [paragraph(f"{word}  {judgement.sentence}", " " * 6, judgement.verdict.value)],
        [paragraph(line, " " * 8) for line in side_lines(comparison, base, new)],
        list(_findings(judgement)),
        _changes(judgement) if comparison is not None else [],
    ]
    return put_together(sections, width)


def compare_text(judgement: ComparisonJudgement, base: str, new: str) -> str:
    """One strict JSON document."""
    document = {"schema_version": COMPARISON_SCHEMA, "base": base, "new": new, "judgement": plain(judgement)}
    if judgement.comparison is not None:
        document["judgement"]["comparison"]["changes"] = [_change_object(c) for c in judgement.comparison.changes]
    return as_json(document)


def baseline_lines(baselines: Sequence[Baseline], width: int = WIDTH) -> list[Line]:
    """All baselines: of what, of how many runs, and the band of each number."""
    if not baselines:
        return [Line("no baseline is saved; gpubalance baseline save RUN makes one")]
    return put_together([list(_baseline(baseline)) for baseline in baselines], width)


def baseline_text(baselines: Sequence[Baseline]) -> str:
    """The same as one strict JSON document, runs and all."""
    return as_json({"schema_version": COMPARISON_SCHEMA, "baselines": plain(tuple(baselines))})


def as_json(document: dict[str, Any]) -> str:
    """Strict JSON on one line."""
    return json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"), default=_values) + "\n"


def _values(record: Record) -> dict[str, Any]:
    """Records within dataclasses."""
    return record.model_dump(mode="json")


def _change_object(change: Change) -> dict[str, Any]:
    """With what is derived from both values."""
    shown = {"real": change.real, "worse": change.worse, "change_percent": _percent(change, change.difference)}
    return {**plain(change), **plain(shown)}


def _percent(change: Change, value: float | None) -> float | None:
    share = change.relative(value)
    return None if share is None else 100 * share


def side_lines(comparison: Comparison | None, base: str, new: str) -> list[str]:
    """Where both sides come from, and under what they did not measure alike."""
    if comparison is None:
        return [f"BASE  {base}", f"NEW   {new}"]
    first, last = min(comparison.base_started), max(comparison.base_started)
    when = first if first == last else f"{first} to {last}"
    runs = f", {counted(comparison.runs, 'run')}" if comparison.runs > 1 else ""
    texts = [f"BASE  {base}{runs}, {when}", f"NEW   {new}, {comparison.new_started}"]
    texts += [f"      {each.what}: {each.base} -> {each.new}" for each in comparison.differences]
    return texts


def _findings(judgement: ComparisonJudgement) -> Iterator[Line]:
    shown = [f for f in judgement.findings if f.state in SHOWN or f.id in ("fail_on", "history", "comparable")]
    for found in shown:
        yield from finding_lines(found)


def finding_lines(found: Finding) -> Iterator[Line]:
    """State and sentence; below it what was seen and what to do, where there is something to do."""
    yield paragraph(f"{found.state.value:7} {found.message}", " " * 8)
    if found.state not in SHOWN:
        return
    seen = ", expected ".join(part for part in (found.observed, found.expected) if part)
    notes = () if found.id == "comparable" else found.evidence  # those stand above
    parts = [found.subject, seen, *notes, f"Next: {found.next_step}." if found.next_step else None]
    for part in filter(None, parts):
        yield paragraph(f"{' ' * 8}{part}", " " * 10)


def _changes(judgement: ComparisonJudgement) -> list[Line]:
    """Metric by metric; columns are as wide in all of them."""
    assert judgement.comparison is not None
    by_metric: dict[str, list[Change]] = defaultdict(list)
    for change in judgement.comparison.changes:
        by_metric[change.metric].append(change)
    rows: list[tuple[str, ...]] = [("", "base", "new", "change", "interval", "")]
    headings: dict[int, str] = {}
    for metric in filter(by_metric.__contains__, MORE_IS_BETTER):
        better = "more" if MORE_IS_BETTER[metric] else "less"
        headings[len(rows)] = f"{metric}: {TITLES[metric]}, {UNITS[metric]} ({better} is better)"
        rows += [_indented(change_cells(change, judgement.setup)) for change in by_metric[metric]]
    lines: list[Line] = []
    for number, line in enumerate(aligned(rows, names=1)):
        lines += [Line(headings[number])] if number in headings else []
        lines.append(Line(line))
    return [*lines, *map(paragraph, _legend(judgement.comparison))]


def _indented(cells: Sequence[str]) -> tuple[str, ...]:
    return (f"  {cells[0]}", *cells[1:])


def change_cells(change: Change, setup: Setup) -> tuple[str, ...]:
    """Place, both values, the change and its interval in percent (points of the score), and whether it is real."""
    scale = scale_of(change.metric)
    place = printable(place_of(setup, change.device, change.collective)) or "the run"
    return (
        place,
        f"{change.base / scale:.5g}",
        f"{change.new / scale:.5g}",
        _signed(change, change.difference),
        _interval(change),
        {True: "", False: "same", None: "?"}[change.real],
    )


def _signed(change: Change, value: float) -> str:
    """In percent; points of the score as they are."""
    if change.metric == "score":
        return f"{value:+.1f}"
    share = _percent(change, value)
    return NONE if share is None else f"{share:+.1f} %"


def _interval(change: Change) -> str:
    if change.low is None or change.high is None:
        return NONE
    if change.metric == "score":
        return f"{change.low:+.1f}..{change.high:+.1f}"
    low, high = _percent(change, change.low), _percent(change, change.high)
    return NONE if low is None or high is None else f"{low:+.1f}..{high:+.1f}"


def _legend(comparison: Comparison) -> Iterator[str]:
    reals = {change.real for change in comparison.changes}
    if False in reals:
        yield "same: no real change, the interval holds zero"
    if None in reals:
        yield "?: one value on each side, noise is not known"
    if comparison.runs > 1:
        yield f"base: median of {comparison.runs} runs; interval: distance to their band"
    elif reals & {True, False}:
        yield "interval: 95 %, by the noise within both runs"
    gone = [each for each in comparison.unmatched if each.side == "BASE"]
    fresh = len(comparison.unmatched) - len(gone)
    if comparison.unmatched:
        yield f"on one side only: {counted(len(gone), 'value')} of BASE, {counted(fresh, 'value')} of NEW"


def _baseline(baseline: Baseline) -> Iterator[Line]:
    setup = baseline.runs[-1].setup
    names = sorted({device.name for device in setup.devices})
    first, last = baseline.runs[0].started_at, baseline.runs[-1].started_at
    model = setup.model
    runs = counted(len(baseline.runs), "run")
    yield paragraph(f"{baseline.key} {baseline.name}: {runs}, {first} to {last}", " " * 8)
    texts = [f"{len(setup.devices)} x {', '.join(names)}"]
    texts += [" ".join(filter(None, (f"GPU {d.nvml_index}", d.uuid))) for d in setup.devices if d.uuid]
    texts.append(f"{model.kind} of {model.layers} x {model.width} in {model.dtype}, batch {setup.global_batch}")
    texts.append(f"workloads {', '.join(setup.workloads)}")
    texts += [f"{name} {_versions(baseline, name)}" for name in sorted(setup.versions)]
    yield from (paragraph(f"  {text}", " " * 4) for text in texts)
    yield from map(Line, _band(baseline, setup))


def _versions(baseline: Baseline, name: str) -> str:
    return " or ".join(dict.fromkeys(saved.setup.versions.get(name) or "none" for saved in baseline.runs))


def _band(baseline: Baseline, setup: Setup) -> Iterator[str]:
    """Devices by their place in the newest run: the runs of a baseline share them."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for fact, place in _placed(baseline, setup):
        values[fact.metric, place].append(fact.value / scale_of(fact.metric))
    rows: list[tuple[str, ...]] = [("", "", "min", "median", "max", "n", "")]
    for (metric, place), seen in values.items():
        numbers = (min(seen), statistics.median(seen), max(seen))
        rows.append((f"  {metric}", place, *(f"{n:.5g}" for n in numbers), str(len(seen)), UNITS[metric]))
    return iter(aligned(rows, names=2))


def _placed(baseline: Baseline, setup: Setup) -> Iterable[tuple[Fact, str]]:
    numbers = {device.uuid: index for index, device in enumerate(setup.devices)}
    for saved in baseline.runs:
        for fact in saved.facts:
            device = fact.device
            if device is not None:
                uuid = saved.setup.devices[device].uuid
                device = numbers[uuid] if uuid is not None else device
            yield fact, printable(place_of(setup, device, fact.collective)) or "the run"

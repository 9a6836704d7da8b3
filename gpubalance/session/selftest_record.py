"""From what a selftest gathered to one record: each pass with the samples of its own time only."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence

from gpubalance import __version__
from gpubalance.launch.collect import Measured
from gpubalance.record.rank_log import Event
from gpubalance.record.run import Phase, Setting
from gpubalance.record.samples import Samples
from gpubalance.record.selftest import Pass, Selftest
from gpubalance.record.timings import DdpAttempt
from gpubalance.sampling.client import SensorProcess
from gpubalance.sampling.collect import collect_samples
from gpubalance.session.assemble import recorded
from gpubalance.session.crew import pass_edge
from gpubalance.session.selftest_story import Story
from gpubalance.settings import Margin, SelftestSettings

INTERVAL_S = 0.1
TIMED = ("sample", "processes", "xid", "quota")
"""Lines of the sensor that belong to the pass in whose time they fall."""


def assemble_selftest(story: Story, sensor: SensorProcess) -> Selftest:
    """The record of what is known now."""
    gathered = story.gathered
    whole = collect_samples(
        sensor.events, start_s=gathered.start_s, interval_s=INTERVAL_S, rank_of_pid=gathered.pids,
        hung_in=sensor.hung_in, died_with=sensor.died_with, last_words=sensor.last_words,
    )  # fmt: skip
    passes = [
        _pass(story, measured, sensor.events) for measured in gathered.measured if measured.pass_number is not None
    ]
    crews = [measured for measured in gathered.measured if measured.pass_number is None]
    return Selftest(
        gpubalance_version=__version__,
        selftest_id=f"{gathered.started_at:%Y-%m-%dT%H-%M-%S}-{secrets.token_hex(3)}",
        started_at=gathered.started_at.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - gathered.start_s, 2),
        seed=story.seed,
        settings=_settings(story.settings),
        node=story.node,
        plan=story.plan,
        ranks=[info for crew in crews for info in crew.ranks],
        probes=[probe for crew in crews[:1] for probe in crew.probes],
        passes=sorted((each for each in passes if each is not None), key=lambda each: each.number),
        played=story.played,
        sensor=whole.health,
        errors=gathered.errors,
        skipped=[*story.skipped, *(skip for crew in crews for skip in crew.skipped)],
        interrupted_by=gathered.interrupted_by,
    )


def _settings(settings: SelftestSettings) -> dict[str, Setting]:
    values: dict[str, object] = dict(vars(settings))
    if isinstance(settings.margin, Margin):
        values["margin"] = [settings.margin.warn, settings.margin.fail]
    return recorded(values, settings.origins)


def _pass(story: Story, measured: Measured, events: Sequence[Event]) -> Pass | None:
    """One finished pass as the first and only attempt of a run."""
    attempt, place = measured.ddp, measured.pass_number
    whole = next((phase for phase in measured.phases if phase.name == "ddp"), None)
    if attempt is None or place is None or whole is None or whole.end_s is None:
        return None
    return Pass(
        number=story.numbers[attempt.attempt, place],
        crew=attempt.attempt,
        begin_s=whole.begin_s,
        end_s=whole.end_s,
        phases=[_first(phase) for phase in measured.phases],
        ddp=attempt.model_copy(update={"attempt": 0}),
        memory=measured.memory,
        samples=_samples(story, attempt, place, whole, events),
    )


def _first(phase: Phase) -> Phase:
    return phase.model_copy(update={"attempt": 0})


def _samples(story: Story, attempt: DdpAttempt, place: int, whole: Phase, events: Sequence[Event]) -> Samples:
    """What the sensor saw in the time of one pass; counters by its two edges, under the names that a run has."""
    start_s = story.gathered.start_s
    begin, end = whole.begin_s + start_s, (whole.end_s or whole.begin_s) + start_s
    edges = {
        pass_edge(attempt.attempt, place, begin=True): "ddp begin",
        pass_edge(attempt.attempt, place, begin=False): "ddp end",
    }
    return collect_samples(
        [renamed for event in events if (renamed := _inside(event, begin, end, edges)) is not None],
        start_s=start_s,
        interval_s=INTERVAL_S,
        rank_of_pid=story.gathered.pids,
    )


def _inside(event: Event, begin: float, end: float, edges: Mapping[str, str]) -> Event | None:
    """The line if it belongs to the pass, its edge renamed; None otherwise."""
    name = event["event"]
    if name in ("counters", "counters_failed"):
        return {**event, "edge": edges[event["edge"]]} if event["edge"] in edges else None
    if name in TIMED:
        return event if begin <= event["t_s"] <= end else None
    return event if name in ("columns", "missing", "xid_listener") else None

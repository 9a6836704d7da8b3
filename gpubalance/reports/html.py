"""One HTML page that holds everything: no script, nothing from the network, light and dark, and it prints.

The same record gives the same bytes. Text from outside is made printable first and then escaped by the template.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.verdict import Judgement
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.reports import probe_tables, run_tables
from gpubalance.reports.charts import probe_charts, run_charts
from gpubalance.reports.common_tables import played
from gpubalance.reports.hang_tables import own_words
from gpubalance.reports.header import header_lines
from gpubalance.reports.printable import printable
from gpubalance.reports.terminal import WORDS

if TYPE_CHECKING:
    from jinja2 import Environment


def html_text(record: Run | Probe, judgement: Judgement | ProbeJudgement) -> str:
    """The page. A run takes the judgement of a run, a probe that of a probe."""
    special = _of_probe(record) if isinstance(record, Probe) else _of_run(record, judgement)
    page = _environment().get_template("report.html.j2")
    return page.render(
        record=record,
        warning=played(record),
        word=WORDS[judgement.verdict],
        verdict=judgement.verdict.value,
        sentence=judgement.sentence,
        findings=judgement.findings,
        rules_version=judgement.rules_version,
        **special,
    )


def _of_run(run: Run, judgement: Judgement | ProbeJudgement) -> Mapping[str, Any]:
    assert isinstance(judgement, Judgement)
    return {
        "header": header_lines(run),
        "tables": run_tables.main_tables(run, judgement),
        "charts": run_charts(run, judgement.facts),
        "more": run_tables.more_tables(run),
        "details": [
            *((error.kind, error.rank, error.detail.splitlines()) for error in run.errors if error.detail),
            *own_words(run),
        ],
    }


def _of_probe(probe: Probe) -> Mapping[str, Any]:
    return {
        "header": [f"gpubalance {probe.gpubalance_version}   a look of {probe.duration_s:.1f} s"],
        "tables": probe_tables.main_tables(probe),
        "charts": probe_charts(probe),
        "more": probe_tables.more_tables(probe),
        "details": [],
    }


def _environment() -> Environment:
    """Strict about names, and every value on its way into the page is printable and escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("gpubalance.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
    )
    environment.filters["picture"] = Markup  # svg_of's own words and numbers, nothing from outside
    return environment

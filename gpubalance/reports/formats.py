"""The formats that a record can be written in: name -> the function that writes it, imported only when it is asked for.

Each function takes a record and its judgement and gives text; the same record gives the same bytes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from gpubalance.checks.probing.verdict import ProbeJudgement, judge_probe
from gpubalance.checks.verdict import Judgement, judge
from gpubalance.errors import UsageError
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run

Write = Callable[[Run | Probe, Judgement | ProbeJudgement], str]

FORMATS: Mapping[str, str] = {
    "html": "gpubalance.reports.html:html_text",
    "markdown": "gpubalance.reports.markdown:markdown_text",
    "junit": "gpubalance.reports.junit:junit_text",
    "prometheus": "gpubalance.reports.prometheus:prometheus_text",
    "jsonl": "gpubalance.reports.jsonl:jsonl_text",
    "github": "gpubalance.reports.github:github_text",
    "nagios": "gpubalance.reports.nagios:nagios_text",
}


def judged(record: Run | Probe) -> Judgement | ProbeJudgement:
    """The judgement by the rules of this version."""
    return judge_probe(record) if isinstance(record, Probe) else judge(record)


def write(name: str, record: Run | Probe, judgement: Judgement | ProbeJudgement) -> str:
    """The record in this format. Raises UsageError for a name that is no format."""
    if name not in FORMATS:
        raise UsageError(f"format {name!r} is not known", f"choose from: {', '.join(FORMATS)}")
    module, _, function = FORMATS[name].partition(":")
    writer: Write = getattr(importlib.import_module(module), function)
    return writer(record, judgement)

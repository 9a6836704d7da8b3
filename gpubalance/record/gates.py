"""The thresholds that a record was made with, so that whoever judges it later does so under the same ones."""

from __future__ import annotations

from gpubalance.errors import UsageError
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.thresholds import Gates, parse_thresholds

SETTING = "thresholds"


def gates_of(record: Run | Probe) -> Gates:
    """What the record's settings ask for, else the defaults; a record without the setting has the defaults.

    Raises UsageError for a setting that `gates_problem` speaks of.
    """
    on_cpu = isinstance(record, Run) and record.plan.backend == "gloo"
    return Gates(parse_thresholds(_texts(record)), on_cpu=on_cpu)


def gates_problem(record: Run | Probe) -> str | None:
    """Why the thresholds in a record cannot be used, in words; None when they can, or when there are none."""
    try:
        parse_thresholds(_texts(record))
    except UsageError as error:
        return f"settings.{SETTING}: {error.message}"
    return None


def _texts(record: Run | Probe) -> list[str]:
    setting = record.settings.get(SETTING)
    if setting is None or setting.value is None:
        return []
    texts = setting.value if isinstance(setting.value, list) else [setting.value]
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{texts!r:.40} is no list of NAME=VALUE")
    return [str(text) for text in texts]

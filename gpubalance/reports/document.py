"""The JSON document: the run and the judgement apart, so that newer rules can judge an old run again.

Strict JSON: no NaN, no infinity, UTF-8, keys in the order of the models; the same run gives the same bytes. Bytes of
names and variables that are no text come out as JSON's own escapes, and read back as they were.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.selftest.verdict import SelftestJudgement
from gpubalance.checks.verdict import Judgement
from gpubalance.record.base import Record
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.record.selftest import Selftest


def document_text(record: Run | Probe | Selftest, judgement: Judgement | ProbeJudgement | SelftestJudgement) -> str:
    """One JSON document, a line feed at its end. The record stands under its kind, that of `bench` under run."""
    return _text({
        "schema_version": record.schema_version,
        "judgement": plain(judgement),
        "run" if record.kind == "bench" else record.kind: record.model_dump(mode="json"),
    })  # fmt: skip


def _text(document: dict[str, Any]) -> str:
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n"


def plain(value: Any) -> Any:
    """Dataclasses, records, enums and tuples as plain JSON values; numbers that are not finite become null."""
    if isinstance(value, Record):
        value = value.model_dump()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value

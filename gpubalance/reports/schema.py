"""The JSON Schema (draft 2020-12) of the documents that `--json`, `--out` and `report --to json` write.

It describes what this version reads: a key that a later version of the same schema_version added is not required.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.selftest.verdict import SelftestJudgement
from gpubalance.checks.verdict import Judgement
from gpubalance.errors import UsageError
from gpubalance.record.probe import PROBE_SCHEMA_VERSION, Probe
from gpubalance.record.run import SCHEMA_VERSION, Run
from gpubalance.record.selftest import SELFTEST_SCHEMA_VERSION, Selftest

DIALECT = "https://json-schema.org/draft/2020-12/schema"

AnyModel = type[Run] | type[Probe] | type[Selftest]
AnyJudgement = type[Judgement] | type[ProbeJudgement] | type[SelftestJudgement]

DOCUMENTS: dict[str, tuple[AnyModel, AnyJudgement, int]] = {
    "run": (Run, Judgement, SCHEMA_VERSION),
    "probe": (Probe, ProbeJudgement, PROBE_SCHEMA_VERSION),
    "selftest": (Selftest, SelftestJudgement, SELFTEST_SCHEMA_VERSION),
}
"""Key that holds the record -> its model, its judgement, its schema version."""


def schema_text(name: str) -> str:
    """The schema of one document. Raises UsageError for a name that is no document."""
    if name not in DOCUMENTS:
        raise UsageError(f"document {name!r} is not known", f"choose from: {', '.join(DOCUMENTS)}")
    return json.dumps(document_schema(name), indent=2, sort_keys=True) + "\n"


def document_schema(name: str) -> dict[str, Any]:
    """The same as a value."""
    model, judgement, version = DOCUMENTS[name]
    record_schema = model.model_json_schema()
    judgement_schema = TypeAdapter(judgement).json_schema(schema_generator=_JudgementSchema)
    definitions = {**record_schema.pop("$defs"), **judgement_schema.pop("$defs")}
    return {
        "$schema": DIALECT,
        "title": f"gpubalance {name}",
        "type": "object",
        "properties": {
            "schema_version": {"const": version},
            "judgement": judgement_schema,
            name: record_schema,
        },
        "required": ["schema_version", "judgement", name],
        "additionalProperties": False,
        "$defs": definitions,
    }


class _JudgementSchema(GenerateJsonSchema):
    """A number of the judgement that is not finite is written as null."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {**super().float_schema(schema), "type": ["number", "null"]}

"""The JSON Schema of saved documents: every document that there is fits, and what is wrong does not."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gpubalance.checks.selftest.verdict import judge_selftest
from gpubalance.checks.verdict import judge
from gpubalance.errors import UsageError
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.record.selftest import Selftest
from gpubalance.reports.document import document_text
from gpubalance.reports.formats import judged
from gpubalance.reports.schema import DOCUMENTS, document_schema, schema_text
from gpubalance.testing.link_runs import link_run
from gpubalance.testing.runs import make_run
from tests.checks.probing.helpers import make_load, make_probe
from tests.checks.probing.test_kept_probes import KEPT as KEPT_PROBES
from tests.checks.probing.test_kept_probes import kept as kept_probe
from tests.reports.helpers import HOSTILE, KEPT, health, kept, named, pair, parallel, row, sampled, without_ddp
from tests.reports.selftest_helpers import make_selftest, right_and_wrong

SAVED = [*(("run", path) for path in KEPT.values()), *(("probe", path) for path in KEPT_PROBES.values())]
RECORDS: dict[str, Run | Probe | Selftest] = {
    "selftest": right_and_wrong(),
    "selftest without passes": make_selftest([], []),
    **{name: kept(name) for name in KEPT},
    **{f"probe {name}": kept_probe(name) for name in KEPT_PROBES},
    "hostile": named(pair(100.0, 108.0), HOSTILE),
    "everything": pair(
        100.0,
        120.0,
        collectives=[row()],
        data_parallel=parallel(),
        samples=sampled({0: {"power_w": [1, 2.5, None]}}, health=health()),
        interrupted_by=2,
    ),
    "on the CPU": make_run(pair(100.0, 100.0).ddp, on_cpu=True),
    "alone": pair(100.0),
    "no ddp": without_ddp(),
    "links": link_run(4, {(0, 1): 0.8}),
    "probe": make_probe(load=make_load(), settings={"only": ["M"], "expect_gpus": 2}),
    "hung driver": make_probe(nvml_failed="nvmlInit did not return").model_copy(update={"node": None}),
}


def validator(name: str) -> Draft202012Validator:
    schema = document_schema(name)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


VALIDATORS = {name: validator(name) for name in DOCUMENTS}


def document_of(record: Run | Probe | Selftest) -> dict[str, Any]:
    judgement: Any = judge_selftest(record) if isinstance(record, Selftest) else judged(record)
    document: dict[str, Any] = json.loads(document_text(record, judgement))
    return document


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_fits_its_schema_and_no_other(name: str) -> None:
    document = document_of(RECORDS[name])
    kind = {Run: "run", Probe: "probe", Selftest: "selftest"}[type(RECORDS[name])]
    assert [name for name, schema in VALIDATORS.items() if schema.is_valid(document)] == [kind]


@pytest.mark.parametrize(("kind", "path"), SAVED, ids=[f"{kind} {path.stem}" for kind, path in SAVED])
def test_every_kept_file_fits_as_it_was_saved(kind: str, path: Path) -> None:
    VALIDATORS[kind].validate(json.loads(path.read_text()))


WRONG: dict[str, tuple[tuple[str, ...], Any]] = {
    "a later schema": (("schema_version",), 2),
    "a verdict that there is not": (("judgement", "verdict"), "perhaps"),
    "a finding without a state": (("judgement", "findings"), [{"id": "x", "message": "m"}]),
    "a text for a number": (("run", "duration_s"), "30"),
    "a key that there is not": (("run", "colour"), "red"),
    "another kind": (("run", "kind"), "probe"),
    "a device of no kind": (("run", "plan", "devices"), [{"kind": "tpu", "name": "x"}]),
}


@pytest.mark.parametrize(("path", "value"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_does_not_fit(path: tuple[str, ...], value: Any) -> None:
    document = copy.deepcopy(document_of(pair(100.0, 100.0)))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert not VALIDATORS["run"].is_valid(document)


@pytest.mark.parametrize("key", ["schema_version", "judgement", "run"])
def test_no_part_may_be_missing(key: str) -> None:
    document = document_of(pair(100.0, 100.0))
    del document[key]
    assert not VALIDATORS["run"].is_valid(document)


def test_a_number_of_the_judgement_that_is_not_finite_is_null_and_fits() -> None:
    run = pair(100.0, 100.0)
    judgement = judge(run)
    first = replace(judgement.facts.attempts[0], measured_s=math.nan)
    document = json.loads(document_text(run, replace(judgement, facts=replace(judgement.facts, attempts=(first,)))))
    assert document["judgement"]["facts"]["attempts"][0]["measured_s"] is None
    VALIDATORS["run"].validate(document)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_text_is_the_schema_with_its_keys_in_order(name: str) -> None:
    text = schema_text(name)
    assert json.loads(text) == document_schema(name)
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n" == schema_text(name)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_names_of_the_record_and_of_the_judgement_do_not_meet(name: str) -> None:
    schema = document_schema(name)
    used = set(json.dumps(schema).split('"#/$defs/')[1:])
    names = {entry.split('"')[0] for entry in used}
    assert names == set(schema["$defs"])


def test_a_document_that_is_not_known_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="document 'table' is not known"):
        schema_text("table")

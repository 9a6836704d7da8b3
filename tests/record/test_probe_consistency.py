"""Probes whose values are of the right types and still cannot be true."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubalance.errors import UsageError
from gpubalance.record.file import load_record
from gpubalance.record.probe import Probe
from gpubalance.record.probe_consistency import probe_contradiction
from tests.support import ROOT

PROBES = {path.stem: path for path in sorted((ROOT / "examples/probes").glob("*.json"))}
Change = Callable[[Any], object]


def document_of(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@pytest.mark.parametrize("path", PROBES.values(), ids=PROBES.keys())
def test_a_probe_of_real_hardware_fits_together(path: Path) -> None:
    assert probe_contradiction(Probe.model_validate(document_of(path)["probe"])) is None


BROKEN: dict[str, tuple[Change, str]] = {
    "fewer devices than are visible": (
        lambda p: p["node"]["devices"].pop(), "node.visibility names GPU 1, the node has 1",
    ),
    "a visible device below 0": (
        lambda p: p["node"]["visibility"].update(visible=[-1]), "node.visibility names GPU -1, the node has 2",
    ),
    "a threshold of no number": (
        lambda p: p["settings"].update(thresholds={"value": [4], "origin": "flag"}),
        "settings.thresholds: [4] is no list of NAME=VALUE",
    ),
    "a load without a node": (lambda p: p.update(node=None), "load.devices names GPU 0, the node has 0"),
    "a load of other devices": (
        lambda p: p["load"].update(devices=[0, 2]), "load.devices names GPU 2, the node has 2",
    ),
    "a load of no devices": (lambda p: p["load"].update(devices=[]), "load.results names device 0, the load has 0"),
    "a result of another device": (
        lambda p: p["load"]["results"][1].update(device=2), "load.results names device 2, the load has 2",
    ),
    "samples of another device": (
        lambda p: p["load"]["samples"]["devices"][0].update(device=-1),
        "load.samples.devices names device -1, the load has 2",
    ),
    "counters of another device": (
        lambda p: p["load"]["samples"]["counters"][0].update(device=7),
        "load.samples.counters names device 7, the load has 2",
    ),
    "fewer ticks than samples": (lambda p: p["load"]["samples"]["t_s"].pop(), "load.samples: column "),
    "no speed": (
        lambda p: p["load"]["results"][0]["speed"].update(gemm_tflops=0.0),
        "load.results: gemm_tflops is 0, it must be above 0",
    ),
    "cores in words": (
        lambda p: p["details"][0]["values"].update(cpu_affinity=True),
        "details of GPU 0: cpu_affinity is no list of CPUs",
    ),
    "more cores than there can be": (
        lambda p: p["details"][1]["values"].update(cpu_affinity="0-999999999"),
        "details of GPU 1: cpu_affinity is no list of CPUs",
    ),
    "NUMA cores in words": (
        lambda p: p["host"]["numa_nodes"].append({"node": 3, "cpus": "all"}), "NUMA node 3: cpus is no list of CPUs",
    ),
    "a version in words": (
        lambda p: p["node"].update(cuda_driver_version=""), "node.cuda_driver_version is no version",
    ),
    "a version of torch in words": (lambda p: p["torch"].update(cuda="new"), "torch.cuda is no version"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_probe_whose_parts_do_not_fit_is_damaged(tmp_path: Path, change: Change, words: str) -> None:
    document = document_of(PROBES["h200x2-load"])
    change(document["probe"])
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError) as raised:
        load_record(path)
    assert raised.value.message.startswith(f"{path} is damaged: {words}")

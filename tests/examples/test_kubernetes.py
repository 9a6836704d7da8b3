"""The manifests against the published schemas of Kubernetes, and what each pod must have."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.examples.helpers import EXAMPLES, walk

FOLDER = EXAMPLES / "kubernetes"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))
VERSIONS = ("1.31", "1.34")
"""An old and a new one; schemas of 1.30 and before ask for onPodConditions in every podFailurePolicy."""


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


def pod(path: Path) -> dict[str, Any]:
    """The one pod specification in a manifest."""
    (spec,) = [part["template"]["spec"] for part in walk(load(path)) if isinstance(part, dict) and "template" in part]
    return dict(spec)


def containers(path: Path) -> list[dict[str, Any]]:
    return [*pod(path).get("initContainers", []), *pod(path)["containers"]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_kubernetes_knows_every_field(path: Path, version: str) -> None:
    """A PyTorchJob is no kind of Kubernetes itself; its pod template is."""
    manifest = load(path)
    if manifest["kind"] == "PyTorchJob":
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": pod(path)}
    kubernetes_validate.validate(manifest, version, strict=True)


def test_the_schema_would_notice_a_wrong_field() -> None:
    manifest = copy.deepcopy(load(FOLDER / "bench-job.yaml"))
    manifest["spec"]["template"]["spec"]["containers"][0]["shmSize"] = "8Gi"
    with pytest.raises(kubernetes_validate.ValidationError, match="shmSize"):
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_every_container_has_shared_memory_a_place_for_runs_and_few_rights(path: Path) -> None:
    assert pod(path)["securityContext"]["runAsNonRoot"] is True
    assert pod(path)["securityContext"]["runAsUser"] == 10001
    volumes = {volume["name"]: volume for volume in pod(path)["volumes"]}
    for container in containers(path):
        mounts = {mount["mountPath"]: volumes[mount["name"]]["emptyDir"] for mount in container["volumeMounts"]}
        assert mounts["/dev/shm"]["medium"] == "Memory"
        assert set(mounts) == {"/dev/shm", "/state", "/tmp"}
        assert {"name": "XDG_STATE_HOME", "value": "/state"} in container["env"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_images_are_pulled_from_where_the_cluster_says(path: Path) -> None:
    for container in containers(path):
        name, _, tag = container["image"].partition(":")
        assert "." not in name.split("/")[0]
        assert tag not in ("", "latest")


def test_a_pytorchjob_is_one_node_under_torchrun() -> None:
    job = load(FOLDER / "pytorchjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert list(job["spec"]["pytorchReplicaSpecs"]) == ["Master"]
    assert job["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"] == 1
    (container,) = containers(FOLDER / "pytorchjob.yaml")
    assert container["name"] == "pytorch"
    assert container["command"][:2] == ["torchrun", "--standalone"]
    assert container["command"][-2:] == ["-m", "gpubalance"]


def test_a_broken_gpu_ends_the_job_and_a_node_without_verdict_is_tried_again() -> None:
    job = load(FOLDER / "init-container.yaml")
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"] == {"containerName": "gpubalance", "operator": "In", "values": [1]}
    assert [c["name"] for c in pod(FOLDER / "init-container.yaml")["initContainers"]] == ["gpubalance"]

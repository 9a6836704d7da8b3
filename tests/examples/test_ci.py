"""The workflows of GitHub and GitLab against their published schemas."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.examples.helpers import EXAMPLES, checked, tool

GITHUB = EXAMPLES / "github-actions/gpu-node.yml"
GITLAB = EXAMPLES / "gitlab-ci/.gitlab-ci.yml"


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("vendor.github-workflows", GITHUB),
        ("custom.github-workflows-require-timeout", GITHUB),
        ("vendor.gitlab-ci", GITLAB),
    ],
)
def test_the_published_schema_holds(schema: str, path: Any) -> None:
    checker = tool("check-jsonschema")
    assert checker is not None
    checked([checker, "--builtin-schema", schema, path])


def jobs() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(GITHUB.read_text())
    return dict(loaded["jobs"])


def test_actions_are_pinned_to_commits_and_say_which_version_that_is() -> None:
    uses = re.findall(r"uses: (.*)", GITHUB.read_text())
    assert len(uses) == 5
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line) for line in uses)


def test_the_token_can_read_the_sources_and_nothing_else() -> None:
    assert yaml.safe_load(GITHUB.read_text())["permissions"] == {}
    assert [job["permissions"] for job in jobs().values()] == [{"contents": "read"}] * 2
    checkouts = [step for job in jobs().values() for step in job["steps"] if "checkout@" in step.get("uses", "")]
    assert [step["with"] for step in checkouts] == [{"persist-credentials": False}] * 2


def test_strangers_cannot_start_it_on_a_machine_of_ours() -> None:
    triggers = yaml.safe_load(GITHUB.read_text())[True]  # YAML reads the key `on` as a truth value
    assert set(triggers) == {"workflow_dispatch", "schedule"}


@pytest.mark.parametrize("name", ["method", "node"])
def test_reports_are_kept_whatever_the_verdict(name: str) -> None:
    last = jobs()[name]["steps"][-1]
    assert "upload-artifact@" in last["uses"]
    assert last["if"] == "${{ !cancelled() }}"
    assert "junit.xml" in last["with"]["path"]
    assert "html" in last["with"]["path"]


def test_a_merge_request_shows_findings_as_tests() -> None:
    pipeline = yaml.safe_load(GITLAB.read_text())
    for name in ("method", "node"):
        artifacts = pipeline[name]["artifacts"]
        assert artifacts["when"] == "always"
        assert artifacts["reports"] == {"junit": "*junit.xml"}
        assert all("junit=" in line for line in pipeline[name]["script"])


def test_no_verdict_is_a_warning_on_a_shared_machine_and_a_failure_on_the_node() -> None:
    pipeline = yaml.safe_load(GITLAB.read_text())
    assert pipeline["method"]["allow_failure"] == {"exit_codes": [3]}
    assert "allow_failure" not in pipeline["node"]

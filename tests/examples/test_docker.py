"""The Dockerfile: what a linter says, what goes in, and that the torch of the image stays."""

from __future__ import annotations

import io

from dockerfile_parse import DockerfileParser

from tests.examples.helpers import EXAMPLES, checked, tool
from tests.support import ROOT

FOLDER = EXAMPLES / "docker"
TEXT = (FOLDER / "Dockerfile").read_text()


def parsed() -> DockerfileParser:
    return DockerfileParser(fileobj=io.BytesIO(TEXT.encode()))


def values(instruction: str) -> list[str]:
    return [part["value"] for part in parsed().structure if part["instruction"] == instruction]


def test_hadolint_finds_nothing() -> None:
    linter = tool("hadolint")
    assert linter is not None
    checked([linter, FOLDER / "Dockerfile"])


def test_it_stands_on_an_image_with_torch_and_runs_without_root() -> None:
    (base,) = values("ARG")
    name, _, tag = base.removeprefix("BASE=").partition(":")
    assert name == "pytorch/pytorch"
    assert "-cuda" in tag
    assert tag.endswith("-runtime")
    assert values("USER") == ["10001:10001"]
    assert values("ENV") == ["XDG_STATE_HOME=/state"]


def test_pip_may_not_replace_torch() -> None:
    install = next(run for run in values("RUN") if "pip install" in run)
    assert "print('torch==' + torch.__version__)" in install
    assert "--constraint /tmp/keep.txt ." in install


def test_everything_that_is_copied_exists_and_is_let_through() -> None:
    copied = [name for value in values("COPY") for name in value.split()[:-1]]
    let_through = (FOLDER / "Dockerfile.dockerignore").read_text().split()
    assert all((ROOT / name).exists() for name in copied)
    assert sorted(f"!{name}" for name in copied) == sorted(line for line in let_through if line.startswith("!"))
    assert let_through[0] == "*"

"""A real child that imports torch, here a module of that name that does what a test wants."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubalance.record.probe import TorchDetail
from gpubalance.sampling import torch_question
from gpubalance.sampling.torch_question import TorchQuestion
from tests.support import ROOT, eventually

Ask = Callable[[str], TorchQuestion]

CPU_BUILD = """
from types import SimpleNamespace as Space
__version__ = "9.8.7+cpu"
version = Space(cuda=None)
backends = Space(cudnn=Space(version=lambda: None))
cuda = Space(is_available=lambda: False, device_count=lambda: 0)
"""


def ended_with(question: TorchQuestion) -> int | None:
    """The child's code as soon as it has one."""
    eventually(lambda: question._process.poll() is not None)
    return question._process.returncode


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Ask a torch whose module is this source; no child is left behind."""
    asked: list[TorchQuestion] = []

    def ask_torch(source: str) -> TorchQuestion:
        package = tmp_path / "modules" / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(source)
        path = os.pathsep.join([str(package.parent), str(ROOT)])
        asked.append(TorchQuestion(tmp_path, {**os.environ, "PYTHONPATH": path}))
        return asked[-1]

    yield ask_torch
    for question in asked:
        question.end()
        assert ended_with(question) is not None


def test_torch_tells_its_versions_and_devices(ask: Ask) -> None:
    found = ask(CPU_BUILD).answer()
    assert found.seconds is not None
    expected = TorchDetail(version="9.8.7+cpu", cuda_available=False, device_count=0)
    assert found.model_copy(update={"seconds": None}) == expected


def test_what_torch_prints_is_not_taken_for_its_answer(ask: Ask) -> None:
    noise = 'import sys\nprint("[W] {not json")\nprint("more, without an end of line", end="")\nsys.stdout.flush()\n'
    assert ask(noise + CPU_BUILD).answer().version == "9.8.7+cpu"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (
            'raise ImportError("libcudart.so.13: cannot open shared object file\\nsecond line")',
            "import torch failed: ImportError: libcudart.so.13: cannot open shared object file",
        ),
        ('raise OSError("")', "import torch failed: OSError: "),
        ("import os; os._exit(3)", "the process that imports torch ended with 3"),
        ("import os; os._exit(0)", "the process that imports torch ended with 0"),
        ('import os; print("[1, 2]", flush=True); os._exit(0)', "the process that imports torch ended with 0"),
        ("import os; print('{\"a\": 1}', flush=True); os._exit(0)", "the process that imports torch ended with 0"),
        ("import os; os.write(1, bytes([0xF8, 0x92])); os._exit(4)", "the process that imports torch ended with 4"),
        ("import os; os.kill(os.getpid(), 11)", "the process that imports torch ended with -11"),
    ],
)
def test_a_torch_that_cannot_be_asked_is_an_error_in_words(ask: Ask, source: str, error: str) -> None:
    assert ask(source).answer() == TorchDetail(error=error)


def test_an_import_that_never_comes_back_is_given_up(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_question, "LIMIT_S", 1.0)
    question = ask("import signal\nwhile True: signal.pause()")
    assert question.answer() == TorchDetail(error="importing torch took more than 1 s")
    assert ended_with(question) == -signal.SIGKILL


def test_a_question_that_nobody_waits_for_ends_when_told(ask: Ask) -> None:
    question = ask("import signal\nwhile True: signal.pause()")
    question.end()
    assert ended_with(question) == -signal.SIGKILL
    question.end()

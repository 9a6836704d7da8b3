"""What the tests of the examples share: where they are, commands that only play a part, documents to read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.verdict import Verdict
from gpubalance.reports.document import plain
from tests.support import ROOT

EXAMPLES = ROOT / "examples"

GPUBALANCE = """#!/bin/sh
echo "gpubalance $*" >>"{folder}/calls"
case " $* " in *" --load "*) part=load ;; *) part=look ;; esac
[ -e "{folder}/$part.hangs" ] && exec tail -f /dev/null
cat "{folder}/$part.out"
exit "$(cat "{folder}/$part.code")"
"""


class Stage:
    """A folder of commands that play a part, and what was done with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands = folder / "bin"
        self.commands.mkdir()
        (folder / "calls").touch()
        self.command("gpubalance", GPUBALANCE.format(folder=folder))

    def command(self, name: str, text: str) -> None:
        """Put a script in the search path, before all others."""
        path = self.commands / name
        path.write_text(text)
        path.chmod(0o755)

    def recorder(self, name: str, then: str = "") -> None:
        """A command that writes down its arguments, and then does that."""
        self.command(name, f'#!/bin/sh\necho "{name} $*" >>"{self.folder}/calls"\n{then}\n')

    def answers(self, part: str, code: int, out: str) -> None:
        """What `gpubalance probe` prints and returns, with --load (load) or without (look)."""
        (self.folder / f"{part}.out").write_text(out)
        (self.folder / f"{part}.code").write_text(str(code))

    def hangs(self, part: str) -> None:
        """Let that `gpubalance probe` never return."""
        (self.folder / f"{part}.hangs").touch()

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script with almost nothing in its environment, as schedulers do."""
        path = f"{self.commands}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [str(part) for part in command],
            env={"PATH": path, "TMPDIR": str(self.folder), **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self, name: str) -> list[str]:
        """Arguments of all calls of a command, in order."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line.removeprefix(f"{name} ") for line in lines if line.split(" ")[0] == name]


def probe_document(verdict: Verdict, *findings: Finding) -> str:
    """What `gpubalance probe --json` prints, as far as the scripts read it."""
    sentence = findings[0].message if findings else "2 GPUs healthy"
    judgement = ProbeJudgement(verdict, sentence, findings, {})
    return json.dumps({"schema_version": 1, "judgement": plain(judgement), "probe": {}})


def found(check: str, state: State, message: str) -> Finding:
    """A finding as short as it can be."""
    return Finding(check, state, message)


def tool(name: str) -> str | None:
    """A checker, beside this Python or in the search path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def checked(command: Sequence[str | Path]) -> None:
    """Run a checker; what it complains about is the message of the failure."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def files(pattern: str) -> list[Path]:
    """Files of the examples, but not the saved records."""
    return [path for path in sorted(EXAMPLES.rglob(pattern)) if path.is_file() and "__pycache__" not in path.parts]


def walk(value: Any) -> list[Any]:
    """A JSON value and everything in it."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(deep for part in inside for deep in walk(part))]

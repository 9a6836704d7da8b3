"""The notebook, executed on a kept run."""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median

import nbformat
import pytest

from gpubalance.record.file import load_run
from tests.examples.helpers import EXAMPLES
from tests.support import ROOT

NOTEBOOK = EXAMPLES / "notebook/read_a_run.ipynb"
RUN = EXAMPLES / "runs/h200x2-slow.json"

EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=150, resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[3])
"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> nbformat.NotebookNode:
    """The notebook with its outputs, as somebody sees it who runs all cells in its folder."""
    folder = tmp_path_factory.mktemp("notebook")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUBALANCE_")}
    folders = dict.fromkeys(("MPLCONFIGDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"), str(folder))
    own = {"PYTHONPATH": str(ROOT), **folders}
    command = [sys.executable, "-c", EXECUTE, str(NOTEBOOK), str(NOTEBOOK.parent), str(folder / "out.ipynb")]
    done = subprocess.run(command, env={**kept, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return nbformat.read(folder / "out.ipynb", as_version=4)


def outputs(notebook: nbformat.NotebookNode) -> list[dict[str, str]]:
    """What each code cell showed: MIME type -> text."""
    return [
        {kind: data for output in cell.outputs for kind, data in output.get("data", {}).items()}
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_it_says_what_the_report_says(executed: nbformat.NotebookNode) -> None:
    assert "fail: rank 1 is 21.4 % slower than rank 0" in outputs(executed)[0]["text/plain"]


def test_the_table_holds_the_medians_of_the_steps(executed: nbformat.NotebookNode) -> None:
    table = outputs(executed)[1]["text/plain"].splitlines()[-2:]
    ranks = load_run(RUN).ddp[0].ranks
    for line, rank in zip(table, ranks, strict=True):
        expected = median(step for block in rank.fenced for step in block.compute_ms)
        assert float(line.split()[1]) == pytest.approx(expected, abs=0.001)


def test_it_draws_three_pictures_and_complains_of_nothing(executed: nbformat.NotebookNode) -> None:
    assert [("image/png" in shown) for shown in outputs(executed)] == [False, False, True, True, False, True]
    shown = [output for cell in executed.cells for output in cell.get("outputs", [])]
    assert {output.output_type for output in shown} == {"execute_result", "display_data"}


def test_the_sensors_table_has_numbers_for_both_devices(executed: nbformat.NotebookNode) -> None:
    header, _, *rows = outputs(executed)[4]["text/plain"].splitlines()
    assert header.split() == ["sm_clock_mhz", "power_w", "temperature_c", "utilization_percent"]
    assert [row.split()[0] for row in rows] == ["0", "1"]
    assert "NaN" not in "".join(rows)


def test_no_outputs_are_committed() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None

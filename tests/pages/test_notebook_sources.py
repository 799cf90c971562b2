"""Promise: notebooks are what their sources say, and run nothing but what teaches."""

import re

import jupytext
import nbformat
import pytest

from conftest import ROOT
from tools.pages import drawing
from tools.run.stages import STAGES


def read(stage):
    """Return the notebook of a stage."""
    return nbformat.read(ROOT / "notebooks" / f"{stage}.ipynb", 4)


def code(notebook):
    """Return the code cells of a notebook."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_notebook_is_what_its_source_says(stage):
    source = jupytext.read(ROOT / "notebooks" / "source" / f"{stage}.py")
    notebook = read(stage)
    nbformat.validate(notebook)
    said = [(cell.cell_type, cell.source) for cell in source.cells]
    shown = [(cell.cell_type, cell.source) for cell in notebook.cells]
    assert shown == said, f"{stage}.ipynb is stale, run: make docs"
    assert all(cell.outputs == [] for cell in code(notebook))
    assert all(cell.execution_count is None for cell in code(notebook))
    last = notebook.cells[-1].source
    assert last.count("<details>") == last.count("</details>") > 0
    for cell in code(notebook):  # without, gloo aborts the exit of a rank, now and then
        if cell.source.startswith("%%ranks "):
            assert cell.source.endswith("\ndist.destroy_process_group()")


def test_some_cells_run_on_several_ranks():
    count = 0
    for stage in STAGES:
        for cell in code(read(stage)):
            count += cell.source.startswith("%%ranks ")
    assert count == 3


@pytest.mark.parametrize("stage", STAGES)
def test_a_cell_shows_the_lines_that_teach(stage):
    """What is drawn stands in tools/pages/drawing.py, by a name."""
    cells = [cell.source for cell in code(read(stage))]
    for source in cells:
        assert not re.search(r"\bplt\b|matplotlib|\.subplots|\baxis\b", source)
        called = re.findall(r"\bdrawing\.(\w+)\(", source)
        assert all(hasattr(drawing, name) for name in called)
    assert len(re.findall(r"^drawing\.", "\n".join(cells), re.MULTILINE)) > 0
    assert max(len(source.splitlines()) for source in cells) <= 45


def test_the_first_cell_is_the_same_in_all():
    assert len({code(read(stage))[0].source for stage in STAGES}) == 1

"""Promise: notebooks are what their sources say, and their cells keep their ids."""

import re

import nbformat
import pytest

from conftest import ROOT
from tools.pages import build_notebooks, drawing
from tools.run.stages import STAGES


def code(notebook):
    """Return the code cells of a notebook."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_notebook_is_what_its_source_says(stage):
    path = ROOT / "notebooks" / f"{stage}.ipynb"
    text = path.read_text()
    assert text == build_notebooks.build(stage), f"{path.name} is stale, run: make docs"
    notebook = nbformat.reads(text, 4)
    nbformat.validate(notebook)
    assert all(cell.outputs == [] for cell in code(notebook))
    assert all(cell.execution_count is None for cell in code(notebook))
    ids = [cell.id for cell in notebook.cells]
    assert all(re.fullmatch(rf"{stage}-[a-z0-9-]+", cell) for cell in ids)
    last = notebook.cells[-1].source
    assert last.count("<details>") == last.count("</details>") > 0
    for cell in code(notebook):  # without, gloo aborts the exit of a rank, now and then
        if cell.source.startswith("%%ranks "):
            assert cell.source.endswith("\ndist.destroy_process_group()")


@pytest.mark.parametrize("stage", STAGES)
def test_a_cell_shows_the_lines_that_teach(stage):
    """What is drawn stands in tools/pages/drawing.py, by a name; every stage has some."""
    cells = [
        cell.source for cell in code(nbformat.reads(build_notebooks.build(stage), 4))
    ]
    for source in cells:
        assert not re.search(r"\bplt\b|matplotlib|\.subplots|\baxis\b", source)
        called = re.findall(r"\bdrawing\.(\w+)\(", source)
        assert all(hasattr(drawing, name) for name in called)
    assert len(re.findall(r"^drawing\.", "\n".join(cells), re.MULTILINE)) > 0
    assert max(len(source.splitlines()) for source in cells) <= 45


def test_the_first_cell_is_the_same_in_all():
    built = (nbformat.reads(build_notebooks.build(stage), 4) for stage in STAGES)
    assert len({code(notebook)[0].source for notebook in built}) == 1


def test_ids_stay_when_the_text_changes(tmp_path, monkeypatch):
    (tmp_path / "source").mkdir()
    original = build_notebooks.source("01_cpu").read_text()
    before = nbformat.reads(build_notebooks.build("01_cpu"), 4)
    monkeypatch.setattr(build_notebooks, "FOLDER", tmp_path)
    changed = original.replace("# ## The data", "# ## What there is")
    (tmp_path / "source" / "01_cpu.py").write_text(changed)
    after = nbformat.reads(build_notebooks.build("01_cpu"), 4)
    assert [c.id for c in before.cells] == [c.id for c in after.cells]
    assert before != after
    doubled = original.replace("# %% digits", "# %% data")
    (tmp_path / "source" / "01_cpu.py").write_text(doubled)
    with pytest.raises(SystemExit, match="every cell needs a label of its own"):
        build_notebooks.build("01_cpu")

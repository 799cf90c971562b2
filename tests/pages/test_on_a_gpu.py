"""Promise: the notebook for a free GPU ends with a report, on CPUs too."""

import re

import jupytext
import nbformat
from nbclient import NotebookClient

from conftest import ENV, ROOT, slow

PATH = ROOT / "notebooks" / "on_a_gpu.ipynb"
COMMANDS = ["doctor", "all", "beyond", "-m pytest", "bench"]


def test_it_is_what_its_source_says():
    source = jupytext.read(ROOT / "notebooks" / "source" / "on_a_gpu.py")
    notebook = nbformat.read(PATH, 4)
    nbformat.validate(notebook)
    said = [(cell.cell_type, cell.source) for cell in source.cells]
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == said
    assert len(said) >= 15
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] for cell in code)


@slow
def test_it_ends_with_a_report(monkeypatch):
    for name in "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES":
        monkeypatch.setenv(name, ENV[name])
    notebook = nbformat.read(PATH, 4)
    resources = {"metadata": {"path": str(ROOT / "notebooks")}}
    NotebookClient(
        notebook, timeout=1200, kernel_name="python3", resources=resources
    ).execute()
    text = "".join(output["text"] for output in notebook.cells[-1].outputs)
    assert re.match(r"torch \S+ on no GPU\n", text)
    begun = re.findall(r"^\$ .*$", text, re.MULTILINE)
    assert [name in line for name, line in zip(COMMANDS, begun, strict=True)] == [
        True
    ] * len(COMMANDS)
    assert re.findall(r"\(exit status (\d+)", text) == ["0"] * len(COMMANDS)
    assert text.count(" scripts, one loss curve") == 2  # in order, and beyond

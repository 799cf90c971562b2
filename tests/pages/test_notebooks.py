"""Promise: notebooks match their sources, run anywhere and fail loudly."""

import re
import shutil
import sys

import pytest
from mutants import copy

from conftest import ROOT, call
from tools.pages import notebook as nb
from tools.pages import stored
from tools.run.ideas import ideas
from tools.run.stages import previous

FOLDER = ROOT / "notebooks"
FREE_GPU = "on_a_gpu"


def read(name):
    import nbformat  # takes seconds

    return nbformat.read(FOLDER / f"{name}.ipynb", 4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    found = []
    for cell in code(notebook):
        found += cell.outputs
    return found


def printed(notebook):
    return "".join(o.get("text", "") for o in outputs(notebook))


def test_lint_names_a_notebook_that_is_not_as_its_source(tmp_path, monkeypatch):
    """This covers cells edited by hand and sources or scripts that changed."""
    folder = shutil.copytree(FOLDER, tmp_path / "notebooks")
    monkeypatch.setattr(stored, "FOLDER", folder)
    assert stored.stale_notebooks() == []
    edited = folder / "03_dp.ipynb"
    edited.write_text(edited.read_text().replace("nb.prepare()", "nb.prepare( )"))
    with open(folder / "source/04_ddp.py", "a") as source:
        source.write("# more\n")
    assert stored.stale_notebooks() == ["03_dp", "04_ddp"]


@pytest.mark.parametrize("name", stored.OF_STAGES)
def test_a_notebook_is_stored_as_it_ran(name):
    """It contains no times or paths, and it describes diffs as the page does now."""
    notebook = read(name)
    assert [o for o in outputs(notebook) if o.output_type == "error"] == []
    assert all(cell.execution_count for cell in code(notebook))
    warned = [o.text for o in outputs(notebook) if o.get("name") == "stderr"]
    assert warned == []
    assert printed(notebook) == stored.without_times(printed(notebook))
    assert str(ROOT) not in str(notebook)
    shown = str(outputs(notebook))
    for idea in ideas(previous(name), name) if previous(name) else []:
        assert f"**{idea.title}**" in shown


@pytest.mark.slow
def test_the_notebook_for_a_free_gpu_ends_with_a_report(monkeypatch):
    """Its commands exist. Here they do nothing; other tests cover their effect."""
    from nbclient import client

    monkeypatch.setenv("MAKEFLAGS", "n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = read(FREE_GPU)
    place = {"metadata": {"path": str(FOLDER)}}
    client.NotebookClient(notebook, timeout=300, resources=place).execute()
    report = "".join(output["text"] for output in notebook.cells[-1].outputs)
    assert re.match(r"torch \S+ on no GPU\n", report)
    begun = re.findall(r"^\$ .*$", report, re.MULTILINE)
    names = ["doctor", "all", "beyond", "-m pytest", "bench"]
    assert len(begun) == len(names)
    for name, line in zip(names, begun, strict=True):
        assert name in line
    assert re.findall(r"\(exit status (\d+)", report) == ["0"] * len(names)
    assert "-m tools beyond" in report


def test_what_goes_wrong_stops_the_notebook(capfd):
    """A notebook stops only at an error; otherwise its next cell would run."""
    with pytest.raises(RuntimeError, match="exit status 1"):
        nb.stream([sys.executable, "-c", "import sys; sys.exit('no MNIST')"])
    assert "no MNIST" in capfd.readouterr().out


def test_opening_keeps_copies_with_edits(tmp_path):
    """The copies are as deep as the originals so that links to stages work."""
    there = copy(tmp_path / "clone")
    (there / "jupyterlab.py").write_text("import sys\nprint(*sys.argv[1:])\n")
    words = ["make", "notebooks", "ARGS=--port=1"]
    begun = call(words, cwd=there)
    assert begun.returncode == 0
    assert f"--ServerApp.root_dir={there} " in begun.stdout
    assert begun.stdout.endswith(" --port=1\n")
    workshop = there / "workshop"
    assert sorted(path.stem for path in workshop.iterdir()) == stored.OF_STAGES
    mine = workshop / "01_cpu.ipynb"
    mine.write_text("edited")
    again = call(words, cwd=there)
    assert "workshop/01_cpu.ipynb is as you left it" in again.stdout
    assert mine.read_text() == "edited"
    assert "workshop/" in (ROOT / ".gitignore").read_text().splitlines()

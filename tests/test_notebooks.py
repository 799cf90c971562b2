"""Promise: the notebooks are built from their sources, run anywhere, and fail loudly."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from test_side_by_side import browser  # noqa: F401

from conftest import ENV, ROOT
from tools import notebooks
from tools.stages import STAGES

PICTURES = dict(zip(STAGES, [5, 2, 1, 3, 2, 2], strict=True))  # at least
RUNS = dict(
    zip(STAGES, [1, 2, 2, 2, 2, 2], strict=True)
)  # scripts that a notebook runs
RANKS = {"04_ddp": 2, "05_ddp_inference": 1}  # cells on several processes


def execute(notebook, folder, monkeypatch):
    """Run a notebook from a fresh kernel, on the sample, and return it with outputs."""
    for name in "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES":
        monkeypatch.setenv(name, ENV[name])
    monkeypatch.setenv("DATA", "data/sample")
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(
        notebook, timeout=90, kernel_name="python3", resources=where
    )
    return client.execute()


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


@pytest.mark.parametrize("stage", STAGES)
def test_a_notebook_is_what_its_source_says(stage):
    path = ROOT / "notebooks" / f"{stage}.ipynb"
    text = path.read_text()
    assert text == notebooks.build(stage), f"{path.name} is stale, run: make docs"
    notebook = nbformat.reads(text, 4)
    nbformat.validate(notebook)
    assert outputs(notebook) == []
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count is None for cell in code)
    assert len(code) >= 6
    ids = [cell.id for cell in notebook.cells]
    assert all(re.fullmatch(rf"{stage}-[a-z0-9-]+", cell) for cell in ids)
    last = notebook.cells[-1].source
    assert last.count("<details>") == last.count("</details>") == 3


def test_ids_stay_when_the_text_changes(tmp_path, monkeypatch):
    (tmp_path / "source").mkdir()
    original = notebooks.source("01_cpu").read_text()
    before = nbformat.reads(notebooks.build("01_cpu"), 4)
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    changed = original.replace("# ## The data", "# ## What there is")
    (tmp_path / "source" / "01_cpu.py").write_text(changed)
    after = nbformat.reads(notebooks.build("01_cpu"), 4)
    assert [c.id for c in before.cells] == [c.id for c in after.cells]
    assert before != after
    doubled = original.replace("# %% digits", "# %% data")
    (tmp_path / "source" / "01_cpu.py").write_text(doubled)
    with pytest.raises(SystemExit, match="every cell needs a label of its own"):
        notebooks.build("01_cpu")


@pytest.mark.parametrize("folder", [".", "notebooks"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_notebook_runs(stage, folder, monkeypatch):
    notebook = nbformat.read(ROOT / "notebooks" / f"{stage}.ipynb", 4)
    execute(notebook, ROOT / folder, monkeypatch)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    found = outputs(notebook)
    text = "".join(o.text for o in found if o.output_type == "stream")
    assert (
        text.count("epoch 1/") == text.count("\nsaved runs/notebooks/") == RUNS[stage]
    )
    assert f"saved runs/notebooks/{stage}/model.pth" in text
    errors = [o.text for o in found if o.get("name") == "stderr"]
    assert [
        text for text in errors if "font cache" not in text
    ] == []  # matplotlib's first
    pictures = [o for o in found if "image/png" in o.get("data", {})]
    assert len(pictures) >= PICTURES[stage]
    on_ranks = [cell for cell in code if cell.source.startswith("%%ranks ")]
    assert len(on_ranks) == RANKS.get(stage, 0)
    shown = [o for o in found if "changed lines." in str(o.get("data", {}))]
    assert len(shown) == (stage != STAGES[0])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ('nb.run("04_ddp", NPROC=3)', "3 processes cannot share a batch of 64 images"),
        ('nb.run("01_cpu", ARGS="--data tests")', "no MNIST in tests"),
        ('%%ranks 2\nraise SystemExit("rank stopped")', "failed with exit status 1"),
        ('nb.stream(["false"])', "the run failed with exit status 1"),
    ],
)  # fmt: skip
def test_a_run_that_fails_stops_the_notebook(code, message, monkeypatch):
    first = nbformat.read(ROOT / "notebooks" / "01_cpu.ipynb", 4).cells[1]
    broken = nbformat.v4.new_code_cell(code)
    notebook = nbformat.v4.new_notebook(cells=[first, broken])
    with pytest.raises(CellExecutionError, match=re.escape(message)):
        execute(notebook, ROOT, monkeypatch)


@pytest.fixture
def lab(tmp_path):
    """A JupyterLab on a copy of a notebook in runs/lab; returns (address, path)."""
    folder = ROOT / "runs" / "lab"
    folder.mkdir(parents=True, exist_ok=True)
    path = shutil.copy(ROOT / "notebooks" / "01_cpu.ipynb", folder)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = {**ENV, "DATA": "data/sample", "JUPYTER_CONFIG_DIR": str(tmp_path),
                   "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path)}  # fmt: skip
    words = ["-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    words += ["--IdentityProvider.token=", f"--ServerApp.root_dir={ROOT}"]
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.2)
        yield address, path
    finally:
        server.terminate()
        server.wait(timeout=30)
        shutil.rmtree(folder)


def test_a_person_can_open_and_run_one(lab, browser):  # noqa: F811
    """In JupyterLab in a browser: opened, run by the menu, saved by the keyboard."""
    address, path = lab
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(f"{address}/lab/tree/runs/lab/01_cpu.ipynb")
    page.locator(".jp-Notebook h1").first.wait_for(timeout=60_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    end, done = time.monotonic() + 90, []
    while time.monotonic() < end and not done:
        page.keyboard.press("Control+s")
        time.sleep(1)
        cells = nbformat.read(path, 4).cells
        code = [cell for cell in cells if cell.cell_type == "code"]
        done = [cell for cell in code[-1:] if cell.execution_count and cell.outputs]
    assert done, os.listdir(ROOT / "runs")
    text = "".join(o.get("text", "") for cell in code for o in cell.outputs)
    assert "saved runs/notebooks/01_cpu/model.pth" in text
    assert not [o for cell in code for o in cell.outputs if o.output_type == "error"]
    page.close()

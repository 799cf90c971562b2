"""Promise: notebooks are as their sources, run anywhere, and fail loudly."""

import re
import shutil
import subprocess
import time
from types import SimpleNamespace

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient
from torch.autograd import DeviceType

from conftest import ENV, EVEN, ROOT
from tools.pages import notebook as nb
from tools.pages import open_notebooks
from tools.run import data as mnist
from tools.run import supervise
from tools.run.stages import STAGES

FOLDER = ROOT / "notebooks"
FREE_GPU = "on_a_gpu"


def read(name):
    return nbformat.read(FOLDER / f"{name}.ipynb", 4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code(notebook) for output in cell.outputs]


def printed(notebook):
    return "".join(o.get("text", "") for o in outputs(notebook))


def errors(notebook):
    wrong = [o for o in outputs(notebook) if o.output_type == "error"]
    return [(one.ename, one.evalue) for one in wrong]


def execute(notebook, **options):
    with pytest.MonkeyPatch.context() as patch:
        for name in "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES":
            patch.setenv(name, ENV[name])
        NotebookClient(notebook, timeout=300, **options).execute()


@pytest.mark.parametrize("name", [*STAGES, FREE_GPU])
def test_a_notebook_is_what_its_source_says(name):
    source = jupytext.read(FOLDER / "source" / f"{name}.py")
    notebook = read(name)
    nbformat.validate(notebook)
    said = [(cell.cell_type, cell.source) for cell in source.cells]
    shown = [(cell.cell_type, cell.source) for cell in notebook.cells]
    assert shown == said, f"{name}.ipynb is stale, run: make docs"
    assert len(said) >= 10
    assert outputs(notebook) == []
    assert all(cell.execution_count is None for cell in code(notebook))


def test_cells_teach_begin_alike_and_end_their_process_groups():
    notebooks = [read(stage) for stage in STAGES]
    assert len({code(notebook)[0].source for notebook in notebooks}) == 1
    on_ranks = 0
    for notebook in notebooks:
        answers = notebook.cells[-1].source
        assert answers.count("<details>") == answers.count("</details>") > 0
        for cell in code(notebook):
            assert not re.search(r"\bplt\b|matplotlib|\baxis\b", cell.source)
            assert len(cell.source.splitlines()) <= 45
            if cell.source.startswith("%%ranks "):
                on_ranks += 1  # gloo aborts the exit of a rank now and then, without
                assert cell.source.endswith("\ndist.destroy_process_group()")
    assert on_ranks == 3


@pytest.fixture(scope="module")
def ran(data):
    """Return {stage: its notebook with outputs}: all six, run on few images.

    One kernel runs one after the other, each with nothing of the one before: a kernel
    of its own for each would import torch six times. The first starts in the root of
    the repository, the others in their folder. No stage runs twice.
    """
    together = nbformat.v4.new_notebook()
    found = {stage: read(stage) for stage in STAGES}
    once = "import functools\nimport tools.pages.notebook as nb\n"
    once += "nb.run = functools.cache(nb.run)"
    for stage, notebook in found.items():
        folder = ROOT if stage == STAGES[0] else FOLDER
        begin = f"%reset -f\nimport os\nos.chdir({str(folder)!r})\n{once}\n%reset -f"
        together.cells += [nbformat.v4.new_code_cell(begin), *notebook.cells]
        once = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATA", str(data(EVEN)))
        execute(together, allow_errors=True)
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_a_notebook_runs(stage, ran):
    notebook = ran[stage]
    assert errors(notebook) == []
    assert all(cell.execution_count for cell in code(notebook))
    warned = [o.text for o in outputs(notebook) if o.get("name") == "stderr"]
    warned = [text for text in warned if "font cache" not in text]  # matplotlib's first
    assert warned == []
    assert printed(notebook).count(f"\nsaved runs/notebooks/{stage}/model.pth\n") == 1
    for cell in code(notebook):
        pictures = [o for o in cell.outputs if "image/png" in o.get("data", {})]
        asked = re.findall(r"^drawing\.|^nb\.curve", cell.source, re.MULTILINE)
        assert len(pictures) == len(asked)
        if "nb.show_diff(" in cell.source:
            assert "changed lines." in str(cell.outputs)
            assert "<summary>why</summary>" in str(cell.outputs)


def test_the_notebook_for_a_free_gpu_ends_with_a_report(monkeypatch):
    """Its commands exist. What they do is tested elsewhere: here they do nothing."""
    monkeypatch.setenv("MAKEFLAGS", "n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    notebook = read(FREE_GPU)
    execute(notebook, resources={"metadata": {"path": str(FOLDER)}})
    report = "".join(output["text"] for output in notebook.cells[-1].outputs)
    assert re.match(r"torch \S+ on no GPU\n", report)
    begun = re.findall(r"^\$ .*$", report, re.MULTILINE)
    names = ["doctor", "all", "beyond", "-m pytest", "bench"]
    assert len(begun) == len(names)
    for name, line in zip(names, begun, strict=True):
        assert name in line
    assert re.findall(r"\(exit status (\d+)", report) == ["0"] * len(names)
    assert "tools.run.launch beyond" in report


def test_what_goes_wrong_stops_the_notebook(monkeypatch):
    """Where a program would end, a notebook needs an error: its next cell would run."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DATA", "data/sample")
    for function, arguments, settings, message in [
        (nb.run, ["04_ddp"], {"NPROC": 3}, "3 processes cannot share a batch of 64 im"),
        (nb.run, ["01_cpu"], {"ARGS": "--data tests"}, "no MNIST in tests"),
        (nb.ranks, ["2", "raise SystemExit(3)"], {}, "failed with exit status 1"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            function(*arguments, **settings)


def test_a_profile_counts_once():
    """A kernel's time is its operation's; without CUPTI there is only the CPU's."""

    def event(key, cpu, gpu, device_type=DeviceType.CPU):
        times = {"self_cpu_time_total": cpu, "self_device_time_total": gpu}
        return SimpleNamespace(key=key, device_type=device_type, **times)

    kernel = event("gemm", 0, 8000, DeviceType.CUDA)
    profile = [event("aten::mm", 1000, 8000), event("aten::relu", 2000, 4000), kernel]
    assert nb.own_times(profile) == ({"aten::mm": 8, "aten::relu": 4}, "GPU")
    profile = [event("aten::mm", 1000, 0), event("aten::relu", 2000, 0)]
    assert nb.own_times(profile) == ({"aten::mm": 1, "aten::relu": 2}, "CPU")


@pytest.fixture
def commands(monkeypatch):
    """The commands that nb.run would run."""
    found = []
    monkeypatch.setattr(nb, "stream", lambda command, **added: found.append(command))
    for name in "GPUS", "NPROC", "DATA":
        monkeypatch.delenv(name, raising=False)
    return found


def test_an_empty_variable_was_not_given(commands, monkeypatch):
    """A make that exports its variables hands on those that nobody gave, empty."""
    monkeypatch.setattr(mnist, "choose", lambda: mnist.SAMPLE)
    nb.run("04_ddp")
    for name in "DATA", "GPUS", "NPROC", "OMP_NUM_THREADS":
        monkeypatch.setenv(name, "")
    nb.run("04_ddp")
    assert nb.mnist() == mnist.SAMPLE
    assert commands[0] == commands[1]


def test_what_jupyter_was_started_with_and_what_a_cell_says(commands, monkeypatch):
    monkeypatch.setenv("DATA", "data/sample")
    monkeypatch.setenv("GPUS", "cpu")
    monkeypatch.setenv("NPROC", "4")
    for name, text in ("ARGS", "--port=80"), ("NNODES", "2"), ("RESTARTS", "3"):
        monkeypatch.setenv(name, text)  # of another command, or of the cluster's
    nb.run("04_ddp")
    nb.run("04_ddp", NPROC=2)
    flags = ["--data", "data/sample", "--out", "runs/notebooks/04_ddp"]
    for processes, command in zip((4, 2), commands, strict=True):
        assert command[1:3] == ["--standalone", f"--nproc-per-node={processes}"]
        assert command[4:] == flags


@pytest.fixture
def lab(tmp_path):
    """JupyterLab by `make notebooks`, in a copy of the repository: (address, copy).

    As a person starts it, perhaps as root, over ssh: ARGS says that no browser opens.
    """
    copy = tmp_path / "copy"
    leave = ".git", ".venv", ".*_cache", "__pycache__", "runs", "workshop", "mnist"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*leave))
    (copy / ".venv").symlink_to(ROOT / ".venv")
    environment = {name: text for name, text in ENV.items() if name != "DATA"}
    for name in "_CONFIG_DIR", "_DATA_DIR", "_RUNTIME_DIR", "LAB_WORKSPACES_DIR":
        environment[f"JUPYTER{name}"] = str(tmp_path / "settings")
    flags = "ARGS=--no-browser --port=0 --IdentityProvider.token=''"
    server = subprocess.Popen(
        ["make", "notebooks", "DATA=data/sample", flags],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        told = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+/", told)):
            line = server.stdout.readline()
            assert line, told
            told += line
        yield found[0], copy
    finally:
        supervise.end(server.pid)


def test_a_person_can_open_and_run_one(browser, lab):
    """In JupyterLab in a browser: a cell run, and saved, by the keyboard.

    It is a copy: the notebook in the repository stays as it was.
    """
    address, copy = lab
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.set_default_timeout(120_000)
    page.goto(address)
    page.get_by_text("01_cpu.ipynb").first.dblclick()
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    page.locator(".jp-Notebook h1").first.click()
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")
    page.get_by_text("data/sample, a sample of MNIST").first.wait_for()
    page.keyboard.press("Control+s")
    end = time.monotonic() + 60
    path = copy / "workshop" / "01_cpu.ipynb"
    while "a sample of MNIST" not in printed(nbformat.read(path, 4)):
        assert time.monotonic() < end
        time.sleep(0.2)
    original = copy / "notebooks" / path.name
    assert original.read_bytes() == (FOLDER / path.name).read_bytes()
    page.get_by_role("link", name="01_cpu/mnist.py").click()
    page.get_by_text("optimizer.zero_grad()").first.wait_for()  # the stage, in a tab
    page.close()


def test_a_copy_with_edits_is_kept(tmp_path, monkeypatch, capsys):
    """Its links are those of the original: it is as deep."""
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert open_notebooks.COPIES == ROOT / "workshop"
    assert "workshop/" in ignored
    monkeypatch.setattr(open_notebooks, "COPIES", tmp_path / "workshop")
    open_notebooks.copy()
    assert capsys.readouterr().out == ""
    mine = tmp_path / "workshop" / "01_cpu.ipynb"
    mine.write_text("edited")
    other = tmp_path / "workshop" / "02_single_gpu.ipynb"
    other.unlink()
    open_notebooks.copy()
    assert mine.read_text() == "edited"
    assert other.read_bytes() == (FOLDER / other.name).read_bytes()
    assert len(list(mine.parent.iterdir())) == len(STAGES)
    assert "workshop/01_cpu.ipynb is as you left it" in capsys.readouterr().out

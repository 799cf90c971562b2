"""Promise: the notebooks run anywhere, in a browser too, and fail loudly."""

import re
import shutil
import socket
import subprocess
import time
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient
from torch.autograd import DeviceType

from conftest import ENV, ROOT, slow
from tools.pages import notebook as nb
from tools.pages import open_notebooks
from tools.run import data, supervise
from tools.run.stages import STAGES


def read(stage):
    return nbformat.read(ROOT / "notebooks" / f"{stage}.ipynb", 4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code(notebook) for output in cell.outputs]


@pytest.fixture(scope="module")
def ran():
    """Return {stage: its notebook with outputs}: all six, run on the sample.

    One kernel runs one after the other, each with nothing of the one before: a kernel
    of its own for each would import torch six times. The first starts in the root of
    the repository, the others in their folder.
    """
    together = nbformat.v4.new_notebook()
    found = {stage: read(stage) for stage in STAGES}
    for stage, notebook in found.items():
        folder = ROOT if stage == STAGES[0] else ROOT / "notebooks"
        begin = f"%reset -f\nimport os\nos.chdir({str(folder)!r})\ndel os"
        together.cells += [nbformat.v4.new_code_cell(begin), *notebook.cells]
    with pytest.MonkeyPatch.context() as patch:
        for name in "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES":
            patch.setenv(name, ENV[name])
        patch.setenv("DATA", "data/sample")
        NotebookClient(
            together, timeout=300, kernel_name="python3", allow_errors=True
        ).execute()
    return found


@slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_notebook_runs(stage, ran):
    wrong = [o for o in outputs(ran[stage]) if o.output_type == "error"]
    assert [(o.ename, o.evalue) for o in wrong] == []
    assert all(cell.execution_count for cell in code(ran[stage]))
    errors = [o.text for o in outputs(ran[stage]) if o.get("name") == "stderr"]
    assert [
        text for text in errors if "font cache" not in text
    ] == []  # matplotlib's first
    source = "\n".join(cell.source for cell in code(ran[stage]))
    scripts = re.findall(r'^nb\.run\("(\w+)"', source, re.MULTILINE)
    assert stage in scripts
    printed = "".join(o.get("text", "") for o in outputs(ran[stage]))
    assert (
        re.findall(r"^saved runs/notebooks/(\w+)/model.pth", printed, re.MULTILINE)
        == scripts
    )
    for cell in code(ran[stage]):
        drawn = [o for o in cell.outputs if "image/png" in o.get("data", {})]
        assert len(drawn) == len(
            re.findall(r"^drawing\.|^nb\.curve", cell.source, re.MULTILINE)
        )
    for cell in code(ran[stage]):
        if "nb.show_diff(" in cell.source:
            assert "changed lines." in str(cell.outputs)


def test_what_goes_wrong_stops_the_notebook(monkeypatch):
    """Where a program would end, a notebook needs an error: its next cell would run."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DATA", "data/sample")
    for function, arguments, settings, message in [
        (nb.run, ["04_ddp"], {"NPROC": 3}, "3 processes cannot share a batch of 64 im"),
        (nb.run, ["01_cpu"], {"ARGS": "--data tests"}, "no MNIST in tests"),
        (nb.show_diff, ["02_single_gpu", "05_ddp_inference"], {}, "05_ddp_inference"),
        (nb.stream, [["false"]], {}, "the run failed with exit status 1"),
        (
            nb.ranks,
            ["2", "raise SystemExit('stopped')"],
            {},
            "failed with exit status 1",
        ),
    ]:
        with pytest.raises(RuntimeError, match=message):
            function(*arguments, **settings)


def test_a_profile_counts_once(monkeypatch):
    """A kernel's time is its operation's; without CUPTI there is only the CPU's."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)

    def event(key, cpu, device, device_type=DeviceType.CPU):
        return SimpleNamespace(
            key=key,
            self_cpu_time_total=cpu,
            device_type=device_type,
            self_device_time_total=device,
        )

    kinds = {"multiplying": ("aten::mm", "gemm")}
    kernel = event("gemm", 0, 8e6, DeviceType.CUDA)
    profile = [event("aten::mm", 1e6, 8e6), event("aten::relu", 2e6, 4e6), kernel]
    assert nb.by_kind(profile, kinds) == ({"multiplying": 8, "all else": 4}, "GPU")
    profile = [event("aten::mm", 1e6, 0), event("aten::relu", 2e6, 0)]
    assert nb.by_kind(profile, kinds) == ({"multiplying": 1, "all else": 2}, "CPU")


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
    monkeypatch.setattr(data, "choose", lambda: data.SAMPLE)
    nb.run("04_ddp")
    for name in "DATA", "GPUS", "NPROC", "OMP_NUM_THREADS":
        monkeypatch.setenv(name, "")
    nb.run("04_ddp")
    assert nb.mnist() == data.SAMPLE
    assert commands[0] == commands[1]


def test_what_jupyter_was_started_with_and_what_a_cell_says(commands, monkeypatch):
    monkeypatch.setenv("DATA", "data/sample")
    monkeypatch.setenv("GPUS", "cpu")
    monkeypatch.setenv("NPROC", "4")
    for name, text in ("ARGS", "--port=80"), ("NNODES", "2"), ("RESTARTS", "3"):
        monkeypatch.setenv(name, text)  # of another command, or of the cluster's
    nb.run("04_ddp")
    nb.run("04_ddp", NPROC=2)
    for processes, command in zip((4, 2), commands, strict=True):
        assert command[1:3] == ["--standalone", f"--nproc-per-node={processes}"]
        assert command[4:] == [
            "--data",
            "data/sample",
            "--out",
            "runs/notebooks/04_ddp",
        ]


@pytest.fixture
def lab(tmp_path):
    """JupyterLab by `make notebooks`, in a copy of the repository: (address, copy).

    As a person starts it, perhaps as root, over ssh: ARGS says that no browser opens.
    """
    copy = tmp_path / "copy"
    settings = tmp_path / "settings"
    leave = ".git", ".venv", ".*_cache", "__pycache__", "runs", "workshop", "mnist"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*leave))
    (copy / ".venv").symlink_to(ROOT / ".venv")
    (copy / data.OFFLINE.relative_to(ROOT)).touch()  # so it is the sample
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    flags = f"--no-browser --port {port} --ServerApp.port_retries=0"
    environment = {name: text for name, text in ENV.items() if name != "DATA"}
    for name in "_CONFIG_DIR", "_DATA_DIR", "_RUNTIME_DIR", "LAB_WORKSPACES_DIR":
        environment[f"JUPYTER{name}"] = str(settings)
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(
            ["make", "notebooks", f"ARGS={flags} --IdentityProvider.token=''"],
            cwd=copy,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}", copy
    finally:
        supervise.end(server.pid)


@slow
def test_a_person_can_open_and_run_one(browser, lab):
    """In JupyterLab in a browser: opened, run by the menu, saved by the keyboard.

    It is a copy: the notebook in the repository stays as it was.
    """
    address, copy = lab
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(address)
    page.get_by_text("01_cpu.ipynb").first.dblclick(timeout=60_000)
    page.locator(".jp-Notebook h1").first.wait_for(timeout=60_000)
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=60_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    end = time.monotonic() + 90
    done = []
    while time.monotonic() < end and not done:
        page.keyboard.press("Control+s")
        time.sleep(1)
        notebook = nbformat.read(copy / "workshop/01_cpu.ipynb", 4)
        wrong = [o for o in outputs(notebook) if o.output_type == "error"]
        assert [(o.ename, o.evalue) for o in wrong] == []
        done = [c for c in code(notebook)[-1:] if c.execution_count and c.outputs]
    assert done
    printed = "".join(o.get("text", "") for o in outputs(notebook))
    assert "data/sample, a sample of MNIST" in printed
    assert "saved runs/notebooks/01_cpu/model.pth" in printed
    assert (copy / "runs/notebooks/01_cpu/model.pth").is_file()
    for original in (ROOT / "notebooks").glob("*.ipynb"):
        assert (
            copy / "notebooks" / original.name
        ).read_bytes() == original.read_bytes()
    page.get_by_role("link", name="01_cpu/mnist.py").click()
    page.get_by_text("optimizer.zero_grad()").first.wait_for()  # the stage, in a tab
    page.close()


def test_a_copy_with_edits_is_kept(tmp_path, monkeypatch, capsys):
    """Its links are those of the original: it is as deep."""
    monkeypatch.setattr(open_notebooks, "COPIES", tmp_path / "workshop")
    open_notebooks.copy()
    assert capsys.readouterr().out == ""
    mine = tmp_path / "workshop" / f"{STAGES[0]}.ipynb"
    mine.write_text("edited")
    for stage in STAGES[1:]:
        (tmp_path / "workshop" / f"{stage}.ipynb").unlink()
    open_notebooks.copy()
    assert mine.read_text() == "edited"
    assert len(list((tmp_path / "workshop").iterdir())) == len(STAGES)
    told = f"workshop/{STAGES[0]}.ipynb is as you left it\n"
    assert capsys.readouterr().out == told
    monkeypatch.undo()
    assert open_notebooks.COPIES.parent == open_notebooks.FOLDER.parent
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert f"{open_notebooks.COPIES.name}/" in ignored


def test_jupyter_starts_as_root_too(monkeypatch):
    for user, expected in (0, True), (1000, False):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        words = open_notebooks.command(["--port=8889"])
        assert ("--allow-root" in words) == expected
        assert words[-1] == "--port=8889"
        assert f"--ServerApp.root_dir={ROOT}" in words  # so links to stages lead there

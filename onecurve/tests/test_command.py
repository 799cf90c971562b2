"""Promise: onecurve is a command for any folder and a function for your own tests."""

import json
import re
import sys

import pytest
from cases import RIGHT
from conftest import PROJECT, call

import onecurve

SLOPPY = """
import sys
import torch
import torch.distributed as dist
from pkg.model import model
dist.init_process_group()
ddp_model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp_model.parameters(), lr=float(sys.argv[1]))
for _ in range(3):
    model(torch.full((4, 2), 1.0 + dist.get_rank())).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
MODEL = "import torch\nmodel = torch.nn.Linear(2, 1)"
BUSY = "import time; time.sleep(6)"
PAGE = (PROJECT / "README.md").read_text()
(PYTEST,) = re.findall(r"```python\n(import onecurve\n.*?)```", PAGE, re.DOTALL)


def python_in(folder, *words):
    """Run `python -m WORDS...` in a folder; return a CompletedProcess."""
    return call([sys.executable, "-m", *words], cwd=folder)


def test_a_module_is_inspected_from_its_folder_and_reported_as_json(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/model.py").write_text(MODEL)
    (tmp_path / "pkg/train.py").write_text(SLOPPY)
    result = python_in(tmp_path, "onecurve", "--format=json", "-m", "pkg.train", "0.5")
    report = json.loads(result.stdout)
    assert report["verdict"] == "1 error in train.py", result.stderr
    (found,) = report["findings"]
    assert (found["name"], found["level"]) == ("exchange", "ERROR")
    assert found["line"] == "train.py:10"
    assert found["details"][-1].startswith("consequence: weights differ between ranks")
    assert (report["status"], result.returncode) == (1, 1)
    assert 0 < report["seconds"] < 600


def test_what_the_command_does_is_told_meanwhile(tmp_path):
    (tmp_path / "train.py").write_text(BUSY)
    result = python_in(tmp_path, "onecurve", "train.py")
    assert " s: run 1, 0 steps in all" in result.stderr
    refused = python_in(tmp_path, "onecurve", "--logs", "train.py", "train.py")
    assert refused.stderr.endswith("Choose another --logs FOLDER\n")


def test_the_pages_own_test_holds_for_a_right_script_and_fails_for_a_wrong(tmp_path):
    (tmp_path / "test_train.py").write_text(PYTEST)
    (tmp_path / "train.py").write_text(RIGHT.read_text())
    right = python_in(tmp_path, "pytest", "-q", "test_train.py")
    assert right.returncode == 0, right.stdout
    assert "NOT COMPARED" not in right.stdout
    wrong = RIGHT.read_text().replace("return ddp_model(", "return model(")
    (tmp_path / "train.py").write_text(wrong)
    result = python_in(tmp_path, "pytest", "-q", "test_train.py")
    assert result.returncode == 1
    assert "gradients are not averaged across ranks" in result.stdout


def test_a_script_that_could_not_be_looked_at_raises(tmp_path):
    with pytest.raises(onecurve.CouldNotLook, match="no such script: no.py"):
        onecurve.inspect("no.py")


WITHOUT_A_SEED = """
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
os.makedirs("logs", exist_ok=True)
with open(os.fsencode(f"logs/{dist.get_rank()}"), "wb") as file:
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().mean().backward()
        optimizer.step()
"""


@pytest.mark.filterwarnings("ignore")  # it has no batches to merge
def test_ranks_without_a_seed_draw_different_numbers(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(WITHOUT_A_SEED)
    assert onecurve.inspect(script) == []


IDLES = """
import time
import torch.distributed as dist
dist.init_process_group("gloo")
time.sleep(600)
"""


@pytest.mark.filterwarnings("ignore")
def test_ranks_that_only_wait_are_ended_long_before_those_that_compute(
    tmp_path, monkeypatch
):
    script = tmp_path / "train.py"
    script.write_text(IDLES)
    monkeypatch.setattr("onecurve.compare.run.IDLE", 2)
    said = "all ranks were idle for 2 s after 0 steps"
    with pytest.raises(onecurve.CouldNotLook, match=said):
        onecurve.inspect(script)


FREES = """
import gc
import weakref
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(3, 1))
owner = weakref.ref(model.reducer)
dist.destroy_process_group()
del model
gc.collect()
assert owner()
"""


@pytest.mark.filterwarnings("ignore")  # it takes no step
def test_a_wrapper_that_is_freed_does_not_wait_for_its_groups_thread(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(FREES)
    assert onecurve.inspect(script) == []


def test_a_finding_is_explained_by_its_name(tmp_path):
    told = python_in(tmp_path, "onecurve", "--explain", "order").stdout
    assert told.startswith("order ERROR: every epoch uses the same sample order. ")
    assert "Fix: call sampler.set_epoch(epoch)" in told
    wrong = python_in(tmp_path, "onecurve", "--explain", "set_epoch")
    assert "no finding set_epoch: expected one of fails, hang, gradient" in wrong.stderr

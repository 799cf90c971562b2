"""Promise: make inspect finds known mistakes in a script, and none in a right one."""

import pytest

from conftest import ROOT, call, edited
from onecurve import report, runs
from onecurve.findings import TABLE
from tools.run.stages import script

STAGE = "05_ddp_inference"
SET_EPOCH = (
    "        sampler.set_epoch(epoch)  # without it, every epoch has the same order\n"
)
OWN = "        torch.manual_seed(epoch + 100 * rank)\n"
REDUCED = "    dist.all_reduce(totals)  # adds up over all ranks\n"
SHUFFLED = "world_size, sampler=sampler", "world_size, shuffle=True"
LOADER = "loader = DataLoader"
WRAPPED = "nn.parallel.DistributedDataParallel(model)  # averages gradients"
BACKWARD = "        loss.backward()\n"
TWICE = "        nn.functional.cross_entropy(model(images), labels).backward()\n"
NOISE = "        images = images * torch.rand(28, 28)\n"
CHANGES = {  # each is run once
    "one order": [
        (SET_EPOCH, ""),
        (
            "        if rank == 0:\n            report(",
            "        if True:\n            report(",
        ),
        (BACKWARD, BACKWARD + TWICE),
        ("        loss = nn", NOISE + "        loss = nn"),
        ("lr=args.lr)", "lr=args.lr * (1 + rank))"),
        ("rank, len(test), world_size", "rank * 499, 500 * (rank + 1)"),
    ],
    "no wrapper": [(WRAPPED, "model"), SHUFFLED, (SET_EPOCH, OWN), (REDUCED, "")],
    "no shares": [SHUFFLED, (SET_EPOCH, "        torch.manual_seed(epoch)\n")],
}
MISTAKES = {  # what is found -> in which of CHANGES, at which line
    "every epoch takes the samples in the same order": ("one order", LOADER),
    "write the same file": ("one order", "open("),
    "gradients are exchanged 2 times for a step": ("one order", BACKWARD),
    "the ranks draw the same random numbers": ("one order", "loss = nn"),
    "the learning rates differ": ("one order", "optimizer.step()"),
    "counts 1 of 1000 samples twice": ("one order", "in DataLoader("),
    "no module is wrapped in DDP": ("no wrapper", "optimizer.step()"),
    "shares of an epoch overlap": ("no wrapper", LOADER),
    "number is printed: loss": ("no wrapper", "if rank == 0:"),
    "on the same samples, in the same order": ("no shares", LOADER),
}
HANGS = """
import torch.distributed as dist
dist.init_process_group()
if dist.get_rank() == 1:
    dist.barrier()
dist.all_gather_object([None, None], 1)
dist.barrier()
"""
WRITES = """
import os, shutil, torch
from pathlib import Path
here = Path(__file__).parent
if os.environ['RANK'] == '1':
    raise SystemExit
assert (here / 'old').read_text() == 'precious'
(here / 'old').write_text('new')
assert (here / 'old').read_text() == 'new'
with open(here / 'log', 'a') as file:
    file.write('more')
assert (here / 'log').read_text() == 'some more'
os.replace(here / 'old', here / 'model')
shutil.rmtree(here / 'kept')
torch.save([1], here / 'kept' / 'weights')
assert torch.load(here / 'kept' / 'weights') == [1]
os.makedirs(here / 'made' / 'deep')
"""


def inspected(path, folder, *flags, compare=False):
    """Return an Inspection of a script on two ranks, and the report."""
    command = path, ["--data", ROOT / "data/sample", *flags], 2
    found = runs.inspect(command, folder / "inspection", compare)
    return found, report.text(path.name, found, 0, folder / "inspection")


@pytest.mark.parametrize("stage", ["07_fsdp", "after_ddp"])
def test_a_right_script_has_no_finding(stage, tmp_path):
    found, text = inspected(script(stage), tmp_path, compare=True)
    assert found.findings == [], text
    assert found.compared == 6, text
    assert text.splitlines()[-1].startswith("No errors")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Return of each of CHANGES to stage 5 the script's lines, and the findings."""
    made = {}
    for name, changes in CHANGES.items():
        folder = tmp_path_factory.mktemp("inspected")
        path = edited(STAGE, folder, *changes)
        found, _ = inspected(path, folder)
        made[name] = path.read_text().splitlines(), found.findings
    return made


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_found_with_its_line(what, reports):
    name, line = MISTAKES[what]
    lines, findings = reports[name]
    (found,) = [one for one in findings if what in f"{one.what} {one.details}"]
    number = int(found.line.removeprefix("mnist.py:"))
    assert line.strip() in lines[number - 1], found


def test_a_missing_factor_is_named(tmp_path):
    change = BACKWARD, "        (loss / dist.get_world_size()).backward()\n"
    found, text = inspected(edited(STAGE, tmp_path, change), tmp_path, compare=True)
    assert "length 0.500000: a factor of 2, the world size, is missing" in text
    assert [one.level for one in found.findings] == ["ERROR"]


def test_a_hang_is_told_with_the_line_of_each_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "PATIENCE", 2)
    path = tmp_path / "train.py"
    path.write_text(HANGS)
    found, _ = inspected(path, tmp_path)
    hang, parted = found.findings
    assert hang.what.startswith("the run hangs")
    assert hang.details == ["rank 0: at train.py:6", "rank 1: at train.py:5"]
    assert parted.what == "the ranks part at collective call 1"


def test_a_script_that_fails_says_so(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import sys\n\nraise ValueError(sys.argv[1])\n")
    result = call(["make", "inspect", f"SCRIPT={path}", "NPROC=3", "ARGS=seven"])
    assert result.returncode == 2, result.stderr
    assert result.stdout.startswith("train.py on 3 CPU ranks: 0 steps")
    assert "ERROR  rank 0 fails: ValueError: seven" in result.stdout
    assert "train.py:3" in result.stdout


def test_nothing_of_the_users_is_overwritten(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(WRITES)
    (tmp_path / "kept").mkdir()
    contents = {"old": "precious", "log": "some ", "model": "best", "kept/weights": "x"}
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    found, text = inspected(path, tmp_path)
    assert not any(one.name == "fails" for one in found.findings), text
    for name, text in contents.items():
        assert (tmp_path / name).read_text() == text
    assert not (tmp_path / "made").exists()


def test_each_finding_is_explained_on_pages_that_there_are():
    explained = (ROOT / "beyond/own_script/INSPECT.md").read_text()
    for row in TABLE.values():
        assert (ROOT / row["page"]).is_file(), row
        assert not row["exercise"] or (ROOT / row["exercise"]).is_file(), row
        for part in row["what"].replace("}", "{").split("{")[::2]:
            assert part.strip(" :") in explained, row


@pytest.mark.parametrize("words", [[], ["SCRIPT=nix.py"], ["SCRIPT=a.py", "NPROC=1"]])
def test_a_users_mistake_is_refused_in_one_line(words, tmp_path):
    result = call(["make", "inspect", *words])
    assert result.returncode == 2
    (line, _) = result.stderr.splitlines()  # the other one is make's
    assert any(told in line for told in ("SCRIPT=train.py", "nix.py", "2 or more"))
    assert result.stdout == ""

"""Promise: make inspect finds known mistakes in a script, and none in a right one."""

import pytest

from conftest import ROOT, call, edited
from tools.inspect import report, runs
from tools.inspect.findings import TABLE
from tools.run.stages import script

STAGE = "05_ddp_inference"
SET_EPOCH = (
    "        sampler.set_epoch(epoch)  # without it, every epoch has the same order\n"
)
OWN = "        torch.manual_seed(epoch + 100 * rank)\n"
REDUCED = "    dist.all_reduce(totals)  # adds up over all ranks\n"
SHARE = "world_size, sampler=sampler"
SHUFFLE = "world_size, shuffle=True"
LOADER = "loader = DataLoader"
WRAPPED = "nn.parallel.DistributedDataParallel(model)  # averages gradients"
REPORT = "        if rank == 0:\n            report("
BACKWARD = "        loss.backward()\n"
TWICE = "        nn.functional.cross_entropy(model(images), labels).backward()\n"
LOSS = "        loss = nn"
NOISE = "        images = images * torch.rand(28, 28)\n"
ONE_ORDER = [
    (SET_EPOCH, ""),
    (REPORT, REPORT.replace("rank == 0", "True")),
    (BACKWARD, BACKWARD + TWICE),
    (LOSS, NOISE + LOSS),
    ("lr=args.lr)", "lr=args.lr * (1 + rank))"),
    ("rank, len(test), world_size", "rank * 499, 500 * (rank + 1)"),
]
NO_WRAPPER = [(WRAPPED, "model"), (SHARE, SHUFFLE), (SET_EPOCH, OWN), (REDUCED, "")]
SAME = [(SHARE, SHUFFLE), (SET_EPOCH, "        torch.manual_seed(epoch)\n")]
MISTAKES = {  # what is found -> its line, and all that is changed for it
    "every epoch takes the samples in the same order": (LOADER, ONE_ORDER),
    "write the same file": ("open(", ONE_ORDER),
    "gradients are exchanged 2 times for a step": (BACKWARD, ONE_ORDER),
    "the ranks draw the same random numbers": ("loss = nn", ONE_ORDER),
    "the learning rates differ": ("optimizer.step()", ONE_ORDER),
    "counts 1 of 1000 samples twice": ("in DataLoader(", ONE_ORDER),
    "no module is wrapped in DDP": ("optimizer.step()", NO_WRAPPER),
    "shares of an epoch overlap": (LOADER, NO_WRAPPER),
    "number is printed: loss": ("if rank == 0:", NO_WRAPPER),
    "on the same samples, in the same order": (LOADER, SAME),
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


def findings_of(text):
    """Return the findings in a report, each with its details."""
    parts = []
    for line in text.splitlines():
        if line.startswith(("ERROR", "SLOW", "LOOK")):
            parts.append(line)
        elif line.startswith("    ") and parts:
            parts[-1] += "\n" + line
    return parts


@pytest.mark.parametrize("stage", ["07_fsdp", "after_ddp"])
def test_a_right_script_has_no_finding(stage, tmp_path):
    found, text = inspected(script(stage), tmp_path, compare=True)
    assert found.findings == [], text
    assert found.compared == 6, text
    assert "a new order in each epoch" in text
    assert text.splitlines()[-1].startswith("No errors")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Return a function that inspects stage 5 with changes, once: lines, findings."""
    made = {}

    def report_on(changes):
        if str(changes) not in made:
            folder = tmp_path_factory.mktemp("inspected")
            path = edited(STAGE, folder, *changes)
            _, text = inspected(path, folder)
            made[str(changes)] = path.read_text().splitlines(), findings_of(text)
        return made[str(changes)]

    return report_on


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_found_with_its_line(what, reports):
    line, changes = MISTAKES[what]
    lines, findings = reports(changes)
    (finding,) = [part for part in findings if what in part]
    number = int(finding.split("mnist.py:")[1].split()[0])
    assert line.strip() in lines[number - 1], finding


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
    assert "make inspect SCRIPT=train.py" in line or "NPROC=2" in line
    assert result.stdout == ""

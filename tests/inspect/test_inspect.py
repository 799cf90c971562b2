"""Promise: make inspect finds known mistakes in a script, and none in a right one."""

import pytest

from conftest import ROOT, call, edited
from tools.inspect import report
from tools.inspect.runs import inspect
from tools.run.stages import script

STAGE = "05_ddp_inference"
SET_EPOCH = (
    "        sampler.set_epoch(epoch)  # without it, every epoch has the same order\n"
)
WRAPPED = "nn.parallel.DistributedDataParallel(model)  # averages gradients"
REPORT = "        if rank == 0:\n            report("
TWICE = """        loss.backward()
        nn.functional.cross_entropy(model(images), labels).backward()
"""
MISTAKES = {
    "the same samples, in the same order": [
        ("world_size, sampler=sampler", "world_size, shuffle=True"),
        (SET_EPOCH, "        torch.manual_seed(epoch)\n"),
    ],
    "shares of an epoch overlap": [
        ("world_size, sampler=sampler", "world_size, shuffle=True"),
        (SET_EPOCH, "        torch.manual_seed(epoch + 100 * rank)\n"),
    ],
    "every epoch takes the samples in the same order": [(SET_EPOCH, "")],
    "no module is wrapped in DDP": [(WRAPPED, "model")],
    "the model is called past DDP": [("train_epoch(ddp_model,", "train_epoch(model,")],
    "number is printed: loss": [
        ("    dist.all_reduce(totals)  # adds up over all ranks\n", "")
    ],
    "number is printed: correct": [("    dist.all_reduce(counts)\n", "")],
    "write the same file": [(REPORT, REPORT.replace("rank == 0", "True"))],
    "counts 1 of 1000 samples twice": [
        ("range(rank, len(test), world_size)", "range(rank * 499, 500 + rank * 500)")
    ],
    "different learning rates": [
        ("lr=args.lr)", "lr=args.lr * (1 + rank))"),
    ],
    "gradients are exchanged 2 times for a step": [
        ("        loss.backward()\n", TWICE),
    ],
    "the ranks draw the same random numbers": [
        (
            "        loss = nn",
            "        images = images * torch.rand(28, 28)\n        loss = nn",
        )
    ],
}


def inspected(path, folder, *flags, gradients=False):
    """Return an Inspection of a script on two ranks, and the report."""
    command = path, ["--data", ROOT / "data/sample", *flags], 2
    found = inspect(command, folder / "log", gradients)
    return found, report.text(path.name, found, 0, folder / "log")


@pytest.mark.parametrize(
    "path",
    [script(STAGE), script("07_fsdp"), script("after_ddp")],
    ids=["05", "07", "own"],
)
def test_a_right_script_has_no_finding(path, tmp_path):
    found, text = inspected(path, tmp_path, gradients=True)
    assert found.findings == [], text
    assert found.compared == 6, text
    assert "a new order in each epoch" in text
    assert text.splitlines()[-1].startswith("No errors")


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_found_with_its_line(what, tmp_path):
    path = edited(STAGE, tmp_path, *MISTAKES[what])
    _, text = inspected(path, tmp_path)
    (finding,) = [part for part in findings_of(text) if what in part]
    number = int(finding.split("mnist.py:")[1].split()[0])
    line = path.read_text().splitlines()[number - 1]
    assert line.strip(), finding


def findings_of(text):
    """Return the findings in a report, each with its details."""
    parts = []
    for line in text.splitlines():
        if line.startswith(("ERROR", "SLOW", "LOOK")):
            parts.append(line)
        elif line.startswith("    ") and parts:
            parts[-1] += "\n" + line
    return parts


def test_a_missing_factor_is_named(tmp_path):
    change = (
        "        loss.backward()",
        "        (loss / dist.get_world_size()).backward()",
    )
    path = edited(STAGE, tmp_path, change)
    found, text = inspected(path, tmp_path, gradients=True)
    assert "length 0.500000: a factor of 2, the world size, is missing" in text
    assert [one.level for one in found.findings] == ["ERROR"]


def test_a_hang_is_told_with_the_line_of_each_rank(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        "import torch.distributed as dist\n"
        "dist.init_process_group()\n"
        "if dist.get_rank() == 1:\n"
        "    dist.barrier()\n"
        "dist.all_gather_object([None, None], 1)\n"
        "dist.barrier()\n"
    )
    found = inspect((path, [], 2), tmp_path / "log", gradients=False)
    (hang, parted) = found.findings
    assert hang.what == "the run hangs"
    assert hang.details == ["rank 0 is at train.py:5", "rank 1 is at train.py:4"]
    assert parted.what == "the ranks part at collective call 1"


def test_a_script_that_fails_says_so(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import sys\n\nraise ValueError(sys.argv[1])\n")
    flags = [f"SCRIPT={path}", "NPROC=3", "ARGS=seven"]
    result = call(["make", "inspect", *flags])
    assert result.returncode == 2, result.stderr
    assert result.stdout.startswith("train.py on 3 CPU ranks: 0 steps")
    assert "ERROR  rank 0 fails: ValueError: seven" in result.stdout
    assert "train.py:3" in result.stdout


def test_nothing_of_the_users_is_overwritten(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        "import os, shutil, torch\n"
        "from pathlib import Path\n"
        "here = Path(__file__).parent\n"
        "if os.environ['RANK'] == '1':\n"
        "    raise SystemExit\n"
        "assert (here / 'old').read_text() == 'precious'\n"
        "(here / 'old').write_text('new')\n"
        "assert (here / 'old').read_text() == 'new'\n"
        "with open(here / 'log', 'a') as file:\n"
        "    file.write('more')\n"
        "assert (here / 'log').read_text() == 'some more'\n"
        "os.replace(here / 'old', here / 'model')\n"
        "shutil.rmtree(here / 'kept')\n"
        "torch.save([1], here / 'kept' / 'weights')\n"
        "assert torch.load(here / 'kept' / 'weights') == [1]\n"
        "os.makedirs(here / 'made' / 'deep')\n"
    )
    (tmp_path / "kept").mkdir()
    contents = {"old": "precious", "log": "some ", "model": "best", "kept/weights": "x"}
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    found = inspect((path, [], 2), tmp_path / "log_of_it", gradients=False)
    whats = [one.what for one in found.findings]
    assert not any("fails" in what for what in whats), whats
    for name, text in contents.items():
        assert (tmp_path / name).read_text() == text
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("words", [[], ["SCRIPT=nix.py"], ["SCRIPT=a.py", "NPROC=1"]])
def test_a_users_mistake_is_refused_in_one_line(words, tmp_path):
    result = call(["make", "inspect", *words])
    assert result.returncode == 2
    (line, _) = result.stderr.splitlines()  # the other one is make's
    assert "make inspect SCRIPT=train.py" in line or "NPROC=2" in line
    assert result.stdout == ""

"""Promise: whatever a learner's script does, a check ends with a sentence and leaves
nothing running, even if the check itself is interrupted or killed.
"""

import os
import signal
import sys
from contextlib import suppress

import psutil
import pytest

from conftest import ENV, running, slow, start, until
from tools.lab import judge as judging
from tools.lab.comparison import expect_curve, expect_weights
from tools.lab.record import Limit, Wrong
from tools.lab.running import PATIENCE, Job, record_of
from tools.lab.setting import of_check
from tools.run.edit import edit
from tools.run.stages import script

STAGE = script("04_ddp").read_text()
NUMBER = f"98765.{os.getpid()}"  # sleep time unique to this process's accidents
SLEEP = f"[sys.executable, '-c', 'import time; time.sleep({NUMBER})']"
IMPORTS = "import os, signal, subprocess, sys, time\nrank = os.environ['RANK']\n"
SAVED = '        save(model, args.out / "model.pth")'


def before(text):
    """Return the stage with `text` before it, on each rank."""
    return f"{IMPORTS}{text}\n{STAGE}"


def after(text):
    """Return the stage with `text` after it saves."""
    return edit(STAGE, (SAVED, f"{SAVED}\n        {text}"))


SPOIL = "    weights['layers.3.bias'] = weights['layers.3.bias'] * torch.nan\n"
WRITE = "    torch.save(weights, path)"
NO_END = "while True: os.write(1, b'x' * 2**20)"
NOT_UTF8 = "os.write(1, b'\\xff'); os.write(2, b'\\xfe')"
OWN_WORDS = "print('ValueError: mine', file=sys.stderr, flush=True)\n1 / 0"
KILL_ONE = "if rank == '1': os.kill(os.getpid(), 9)"
SAVE_ALL = "torch.save(model, args.out / 'model.pth')"
ODD_METRICS = "print('a,b\\n1,2', file=open(args.out / 'metrics.csv', 'w'))"
NAN = edit(STAGE, ("(loss_sum / count)", "(loss_sum / count * torch.nan)"))
NOT_SAVED = edit(STAGE, (SAVED, "        pass"))
NAN_SAVED = edit(STAGE, (WRITE, SPOIL + WRITE))
ACCIDENTS = {  # name -> script and expected message; "" if it passes
    "syntax": ("def main(:\n", r"SyntaxError: .*\n  at line 1: def main\(:"),
    "import": (before("import nope"), "No module named 'nope'\n  at line 3: import"),
    "nothing": ("", "ends without an error, but it has not trained"),
    "os exit": (before("os._exit(3)"), "rank . exited with status 3"),
    "exit text": (before("sys.exit('Oh: no')"), "run fails: Oh: no\n  at line 3"),
    "one exits": (before("if rank == '1': exit()"), "rank 0 is at|rank 0 failed at"),
    "killed": (before(KILL_ONE), "killed by SIGKILL, usually because memory ran out"),
    "own words": (before(OWN_WORDS), "ZeroDivisionError: division by .*\n  at line 4"),
    "no UTF-8 out": (before(NOT_UTF8), ""),
    "a child": (before(f"subprocess.Popen({SLEEP})"), ""),
    "a daemon": (before(f"subprocess.Popen({SLEEP}, start_new_session=True)"), ""),
    "whole model": (after(SAVE_ALL), "model.pth cannot be read as a state_dict"),
    "no model": (NOT_SAVED, "model.pth is missing or contains no state_dict"),
    "odd metrics": (after(ODD_METRICS), "metrics.csv cannot be read"),
    "no number": (NAN, "The loss of epoch 1 is nan, but in stage 1 it is 2.2"),
    "no weights": (NAN_SAVED, "layers.3.bias in model.pth is off by nan"),
    "no stop": (
        before("def stay():\n    while True: pass\nstay()"),
        "stopped: .*\n  rank 0 is at line 4: while",
    ),
    "input": (before("input()"), "EOFError"),
}
LIMITS = {
    "no end of it": (before(NO_END), "File too large"),
    "a GPU": (before("import torch; torch.zeros(1, device='cuda')"), "CUDA|NVIDIA"),
}


def left():
    """Return the processes started by accidents that are still there."""
    return running(NUMBER)


def still_runs(process):
    """Return whether a process is alive; zombies don't count, init reaps them."""
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def judge(text):
    """Do what a check does with a stage's script."""
    setting = of_check("04_ddp")
    record = record_of(Job(text, "04_ddp", setting, judging.LIMIT), {})
    record.expect_end()
    record.expect_no_finding()
    right = record_of(Job(STAGE, "04_ddp", setting, PATIENCE), {})
    expect_curve(record, right, "stage 1")
    expect_weights(record, right, "stage 1")


@pytest.mark.parametrize("name", ACCIDENTS)
def test_an_accident_becomes_a_sentence(name, monkeypatch):
    text, said = ACCIDENTS[name]
    monkeypatch.setattr(judging, "LIMIT", 2 if name in ("no stop", "one exits") else 99)
    if said:
        with pytest.raises(Wrong, match=said) as caught:
            judge(text)
        assert caught.type is Wrong
        assert "Traceback" not in str(caught.value)
        assert len(str(caught.value)) < 1000
    else:
        judge(text)
    assert left() == []


@pytest.mark.parametrize("name", LIMITS)
def test_what_the_lab_cannot_judge_is_its_own_limit(name, monkeypatch):
    text, said = LIMITS[name]
    monkeypatch.setattr(judging, "LIMIT", 99)  # the machine may be busy
    with pytest.raises(Limit, match=said):
        judge(text)


@pytest.mark.parametrize("how", [slow(signal.SIGKILL), slow(signal.SIGINT)])
def test_a_check_that_is_ended_leaves_nothing(tmp_path, monkeypatch, how):
    """The check itself doesn't import PyTorch; its child processes do."""
    monkeypatch.setattr("conftest.ENV", {**ENV, "WORKSHOP": str(tmp_path)})
    begun = tmp_path / "07_one_half/mnist.py"
    begun.parent.mkdir()
    daemon = f"subprocess.Popen({SLEEP}, start_new_session=True)"
    begun.write_text(before(f"{daemon}; time.sleep(99)"))
    check = start([sys.executable, "-m", "tools", "check", "E=07"])
    until(lambda: len(left()) >= 2)
    family = psutil.Process(check.pid).children(recursive=True)
    assert psutil.Process(check.pid).memory_info().rss < 2**27
    if how == signal.SIGINT:
        os.killpg(check.pid, how)  # a terminal signals the whole group
    else:
        check.send_signal(how)
    _, stderr = check.communicate(timeout=300)
    assert stderr == ("\nstopped\n" if how == signal.SIGINT else "")
    until(lambda: not any(map(still_runs, family)))
    assert left() == []

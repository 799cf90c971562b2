"""Promise: whatever a learner's script does, a check ends in a sentence and leaves
nothing running, also when the check itself is interrupted or killed.
"""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from conftest import ENV, call, slow, start
from tools.lab import checks, commands
from tools.run.stages import script

STAGE = script("04_ddp").read_text()
NUMBER = "98765.4321"  # seconds: the processes that sleep so long are these tests' own
SLEEP = f"[sys.executable, '-c', 'import time; time.sleep({NUMBER})']"
IMPORTS = "import os, signal, subprocess, sys, time\nrank = os.environ['RANK']\n"
RUN = "main(parse_args())"
SAVED = '        save(model, args.out / "model.pth")'


def before(text):
    """The stage, with something done on each rank before it."""
    return f"{IMPORTS}{text}\n{STAGE}"


def after(text):
    """The stage, with something done once it has saved."""
    assert STAGE.count(SAVED) == 1
    return STAGE.replace(SAVED, f"{SAVED}\n        {text}")


ACCIDENTS = {  # what it is -> the script, and what is said; "" where it passes
    "syntax": ("def main(:\n", r"SyntaxError: .*\n  at line 1: def main\(:"),
    "import": (before("import nope"), "No module named 'nope'\n  at line 3: import"),
    "nothing": ("", "metrics.csv has 0 epochs"),
    "exit": (before("exit()"), "metrics.csv has 0 epochs"),
    "exit 1": (before("sys.exit(1)"), "rank . ended with exit status 1\n  at line 3"),
    "os exit": (before("os._exit(3)"), "rank . ended with exit status 3"),
    "exit text": (before("sys.exit('Oh: no')"), "The run fails: Oh: no\n  at line 3"),
    "one exits": (before("if rank == '1': exit()"), "rank 0 is at|rank 0 failed at"),
    "killed": (before("if rank == '1': os.kill(os.getpid(), 9)"),
               "rank 1 was killed by SIGKILL, as the system does when memory runs out"),
    "own words": (before("print('ValueError: mine', file=sys.stderr, flush=True)\n1 / 0"),
                  "The run fails: ZeroDivisionError: division by zero\n  at line 4"),
    "much": (before("print('x' * 2**20)"), ""),
    "no end of it": (before("while True: os.write(1, b'x' * 2**20)"), "too large"),
    "no UTF-8 out": (before("os.write(1, b'\\xff'); os.write(2, b'\\xfe')"), ""),
    "a child": (before(f"subprocess.Popen({SLEEP})"), ""),
    "a daemon": (before(f"subprocess.Popen({SLEEP}, start_new_session=True)"), ""),
    "empty model": (after("open(args.out / 'model.pth', 'w').close()"), "cannot be read"),
    "whole model": (after("torch.save(model, args.out / 'model.pth')"), "no state_dict"),
    "empty metrics": (after("open(args.out / 'metrics.csv', 'w').close()"), "0 epochs"),
    "odd metrics": (after("print('a,b\\n1,2', file=open(args.out / 'metrics.csv', 'w'))"),
                    "metrics.csv cannot be read"),
    "no stop": (before("while True: pass"), r"hangs: .*\n  rank 0 is at line 3: while"),
    "workers": (STAGE.replace("batch_size=None,", "batch_size=None, num_workers=2,"), ""),
    "input": (before("input()"), "EOFError"),
}  # fmt: skip


def left():
    """Return the processes that the accidents have started and that still are there."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(NUMBER in word for word in process.info["cmdline"] or []):
            found.append(process)
    return found


SOON = ["syntax", "own words", "killed", "a daemon", "empty model", "no stop"]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in SOON else slow) for n in ACCIDENTS]
)
def test_an_accident_becomes_a_sentence(name, monkeypatch):
    text, said = ACCIDENTS[name]
    monkeypatch.setattr(checks, "LIMIT", 2 if name in ("no stop", "one exits") else 8)
    exercise = commands.find("08")
    monkeypatch.setitem(vars(exercise), "script", lambda _: STAGE)
    if said:
        with pytest.raises(checks.Wrong, match=said) as caught:
            checks.weights(judged(exercise, text))
        assert "Traceback" not in str(caught.value)
        assert len(str(caught.value)) < 1000
    else:
        exercise.check(text)
    assert left() == []


def judged(exercise, text):
    """Judge a script, and return what was seen of it where it passes."""
    from tools.lab.exercise import observed

    exercise.check(text)
    return observed(text, exercise.stage)


@pytest.fixture
def begun(tmp_path):
    """A workshop with exercise 08 begun, and the words that check it."""
    environment = {**ENV, "WORKSHOP": str(tmp_path)}
    folder = tmp_path / "08_local_loss"
    folder.mkdir()
    words = [sys.executable, "-m", "tools.lab.commands", "check", "08"]
    return folder / "mnist.py", words, environment


def test_a_script_that_is_not_utf8(begun):
    path, words, environment = begun
    path.write_bytes("# über\nx = 1\n# naïve\n".encode("latin-1"))
    result = call(words, env=environment)
    assert (result.returncode, result.stderr) == (commands.NOT_YET, "")
    verdict = result.stdout.splitlines()[1]
    assert verdict.startswith("Not yet. Line 1 of ")
    assert verdict.endswith("is not UTF-8: save it so.")


SIGNALS = [signal.SIGINT, signal.SIGTERM]
ASLEEP = before(f"subprocess.Popen({SLEEP}, start_new_session=True); time.sleep(99)")


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, *(pytest.param(s, marks=slow) for s in SIGNALS)]
)
def test_a_check_that_is_ended_leaves_nothing(begun, monkeypatch, how):
    path, words, environment = begun
    path.write_text(ASLEEP)
    monkeypatch.setattr("conftest.ENV", environment)
    check = start(words)
    family = []
    end = time.monotonic() + 60
    while len(left()) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    family = psutil.Process(check.pid).children(recursive=True)
    if how == signal.SIGINT:
        os.killpg(check.pid, how)  # a terminal sends it to all
    else:
        check.send_signal(how)
    _, stderr = check.communicate(timeout=15)
    assert stderr == ("stopped\n" if how == signal.SIGINT else "")
    _, alive = psutil.wait_procs(family, 10)
    assert alive == []
    assert left() == []


@slow
@pytest.mark.parametrize(
    "name", ["syntax", "no stop", "a daemon", "exit 1", "empty model"]
)
def test_an_accident_the_real_way(begun, name):
    path, words, environment = begun
    path.write_text(ACCIDENTS[name][0])
    result = call(words, env=environment, timeout=60)
    assert result.stderr == ""
    assert result.stdout.splitlines()[1].startswith(("Not yet. ", "Solved: "))
    assert left() == []


@slow
def test_two_checks_at_once(begun):
    path, words, environment = begun
    path.write_text(STAGE)
    both = [
        subprocess.Popen(words, env=environment, cwd=commands.ROOT, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]  # fmt: skip
    for check in both:
        stdout, stderr = check.communicate(timeout=100)
        assert (stdout.splitlines()[1][:7], stderr) == ("Solved:", "")

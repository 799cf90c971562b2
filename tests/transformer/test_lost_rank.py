"""Promise: whenever ranks die, the survivors stay on one process's curve to 1e-12.

A rank dies by os._exit(0), so that the runner doesn't end the other ranks. To them it
is like kill -9: the kernel closes its connections.
"""

import ast
import os
import sys
import threading
import time
from itertools import count

import pytest
import torch.distributed as dist
from test_transformer import off, rows_of, train

from conftest import command, run, running, slow, start
from tools.run.stages import script

STAGE = "21_lost_rank"
FLAGS = ["--steps", 7, "--every", 3, "--seed", 1, "--lr", 0.01, "--batch-size", 7]
FIRST, SECOND = 3, 6  # steps in which ranks die; a report follows each
WORLDS = {3: {0: FIRST, 1: SECOND}, 4: {0: FIRST, 1: FIRST}}  # 3 -> 2 -> 1, 4 -> 2
TEXT = script(STAGE).read_text()
CODE = [line.strip() for line in TEXT.splitlines()]
# Lines that don't run again after a death, or only after an error.
RARE = "os._exit", "raise", 'print("step,loss'


def lines_of(function, first):
    """Return the lines of a function's statements, from one that begins with `first`.

    Lines that begin with one of RARE are left out.
    """
    names = {getattr(node, "name", ""): node for node in ast.parse(TEXT).body}
    inner = [one for one in ast.walk(names[function]) if isinstance(one, ast.stmt)]
    found = sorted({one.lineno for one in inner})
    begin = next(at for at in found if CODE[at - 1].startswith(first))
    return [at for at in found if at >= begin and not CODE[at - 1].startswith(RARE)]


TAKES, CATCHES_UP = (
    at for at, code in enumerate(CODE, 1) if code == "optimizer.step()"
)
STEP = [*lines_of("train", "for"), *lines_of("report", "s"), *lines_of("go_on", "for")]
# Lines that run again because of a death.
FORM = [*lines_of("find_survivors", "q"), *lines_of("main", "reason")]
FORM += [line for line in lines_of("go_on", "rank") if line != CATCHES_UP]
CASES = [(3, {0: (FIRST, "dies", STEP[12]), 1: (SECOND, "at", 2)})]
for ranks, steps in WORLDS.items():
    for moment in range(30):
        deaths = {rank: (step, "at", moment) for rank, step in steps.items()}
        CASES.append(slow(ranks, deaths))
    for line in STEP:
        deaths = {rank: (step, "dies", line) for rank, step in steps.items()}
        CASES.append(slow(ranks, deaths))
    for line in FORM:
        deaths = {0: (FIRST, "dies", TAKES), 1: (FIRST, "dies", line)}
        CASES.append(slow(ranks, deaths))


def asking(rank, folder):
    """Return a time.sleep that waits until each rank has answered or ended."""
    sleep, numbers = time.sleep, count()
    size = int(os.environ["WORLD_SIZE"])

    def wait(_):
        number = next(numbers)
        (folder / f"asked{number}-{rank}").touch()
        for other in range(size):
            names = f"asked{number}-{other}", f"ended{other}"
            while not any((folder / name).exists() for name in names):
                sleep(0.01)

    return wait


def mortal(rank, folder, deaths):
    """Let a rank die or fail, and ask the others without waiting for a fixed time.

    `deaths` is {rank: (step, "dies", line)}, (step, "at", milliseconds) after the step
    has begun, or (step, "fails", None) with an error instead of the last sum.
    """
    step, how, when = deaths.get(rank, (0, "", None))
    original = dist.all_reduce
    begun = []

    def die():
        (folder / f"died{rank}").touch()
        (folder / f"ended{rank}").touch()
        os._exit(0)

    def fail(tensor):
        original(tensor)
        if begun == [step] and tensor.numel() == 2:
            begun.append("failed")
            tensor.fill_(-1)
            raise RuntimeError("as gloo's")

    def trace(frame, event, _):
        if not frame.f_code.co_filename.endswith(f"{STAGE}/gpt.py"):
            return None
        called = event == "call" and frame.f_code.co_name == "draw_batch"
        if called and not begun and frame.f_locals["seed"] == 1 + step:
            begun.append(step)
            if how == "at":
                threading.Timer(when / 1000, die).start()
        if begun and how == "dies" and event == "line" and frame.f_lineno == when:
            die()
        return trace

    time.sleep = asking(rank, folder)
    if how == "fails":
        dist.all_reduce = fail
    sys.settrace(trace if step else None)
    return (folder / f"ended{rank}").touch


def run_with(deaths, ranks, folder):
    """Run the stage with deaths; return its result and the ranks that have died."""
    path = folder / STAGE / "gpt.py"
    path.parent.mkdir()
    path.write_text(TEXT.replace("minutes=1", "seconds=10"))
    prepare = mortal, path.parent, deaths
    words = [*FLAGS, "--out", folder / "out"]
    result = run(STAGE, *words, processes=ranks, path=path, prepare=prepare)
    return result, {int(one.name[4:]) for one in path.parent.glob("died*")}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """Return the rows of one process's metrics.csv."""
    return train("13_gpt", tmp_path_factory.mktemp("one"), *FLAGS)


def check(deaths, ranks, folder, right):
    """Run with deaths and compare the survivors' curve."""
    result, died = run_with(deaths, ranks, folder)
    assert result.statuses == [0] * ranks, result.stderr  # each rank ended by itself
    assert died == {rank for rank, (_, how, _) in deaths.items() if how != "fails"}
    assert 0 <= off(rows_of(folder / "out"), right) <= 1e-12


@pytest.mark.parametrize(("ranks", "deaths"), CASES, ids=str)
def test_ranks_die_at_any_moment_and_at_any_line(ranks, deaths, right, tmp_path):
    """Rank 0, which reports, dies first."""
    check(deaths, ranks, tmp_path, right)


@pytest.mark.parametrize("behind", [1, slow(2)])
def test_a_survivor_takes_the_step_that_another_has_taken(behind, right, tmp_path):
    """Rank 0 dies after its last sum, which has not arrived on a second rank."""
    deaths = {0: (FIRST, "dies", TAKES), behind: (FIRST, "fails", None)}
    check(deaths, 3, tmp_path, right)


def test_an_error_without_a_death_ends_the_run(tmp_path):
    result, _ = run_with({1: (FIRST, "fails", None)}, 2, tmp_path)
    assert result.returncode == 1
    assert "RuntimeError: as gloo's" in result.stderr


@pytest.mark.slow
def test_torchrun_lets_the_survivors_of_kill_9_live(tmp_path):
    """By the page's command."""
    flags = [*FLAGS, "--steps", 300, "--every", 30]
    out = tmp_path / "out"
    *launcher, path = command(STAGE, processes=3)
    shell = "--no-python", "sh", "-c", '"$@" || true', "sh"
    words = [sys.executable, path, *flags, "--out", out]
    process = start([*launcher, *shell, *words])
    for line in process.stdout:
        ranks = [one for one in running(str(out)) if one.cmdline()[1] == path]
        if len(ranks) > 1 and line.startswith(("step 60/", "step 120/")):
            ranks[0].kill()
    assert process.wait() == 0
    assert running(str(out)) == []
    expected = train(
        "13_gpt", tmp_path / "one", "--batch-size", 32, "--lr", 0.003, *flags
    )
    assert 0 <= off(rows_of(out), expected) <= 1e-12

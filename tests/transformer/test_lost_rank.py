"""Promise: whenever ranks die, the survivors stay on one process's curve to 1e-12.

A rank dies by os._exit(0), so that the runner doesn't end the other ranks. To them it
is like kill -9: the kernel closes its connections.
"""

import ast
import os
import sys
import threading
import time

import pytest
import torch.distributed as dist
from test_transformer import off, rows_of, train

from conftest import run, slow
from tools.run.stages import script

STAGE = "21_lost_rank"
FLAGS = ["--steps", 7, "--every", 3, "--seed", 1, "--lr", 0.01, "--batch-size", 7]
FIRST, SECOND = 3, 6  # steps in which ranks die; a report follows each
WORLDS = {3: {0: FIRST, 1: SECOND}, 4: {0: FIRST, 1: FIRST}}  # 3 -> 2 -> 1, 4 -> 2
TEXT = script(STAGE).read_text()
CODE = [one.strip() for one in TEXT.splitlines()]


def lines_of(function, first=""):
    """Return the numbers of a function's lines, from the one that begins with `first`.

    They are the first lines of statements that run without an error in the script.
    """
    names = {getattr(node, "name", ""): node for node in ast.parse(TEXT).body}
    inner = [
        one.lineno for one in ast.walk(names[function]) if isinstance(one, ast.stmt)
    ]
    found = sorted({number for number in inner if CODE[number - 1][:3] != '"""'})[1:]
    begins = [CODE[number - 1].startswith(first) for number in found]
    kept = found[begins.index(True) :]
    never = "os._exit", "raise", "try", "while"
    return [number for number in kept if not CODE[number - 1].startswith(never)]


# Lines of each step and report, and those that run again because of a death.
STEP = [*lines_of("train"), *lines_of("report"), *lines_of("go_on", "for first")]
AGAIN = [*lines_of("find_survivors"), *lines_of("main", "reason"), *lines_of("go_on")]
DONE = CODE.index("optimizer.step()") + 1  # in `train`: all sums have arrived
CAUGHT_UP = CODE.index("optimizer.step()", DONE) + 1
HEADER = CODE.index('print("step,loss,correct,total,seconds", file=file)') + 1


class Mortal:
    """One rank: it may die, and it asks the others without waiting for a fixed time."""

    def __init__(self, rank, folder, deaths):
        self.rank = rank
        self.folder = folder
        self.size = int(os.environ["WORLD_SIZE"])
        self.step, self.how, self.when = deaths.get(rank, (None, "", 0))
        self.begun = False
        self.asked = 0
        self.sleep = time.sleep
        self.all_reduce = dist.all_reduce

    def end(self, word="ended"):
        (self.folder / f"{word}{self.rank}").touch()

    def die(self):
        self.end("died")
        self.end()
        os._exit(0)

    def hang(self):
        """Hang until all other ranks have ended."""
        self.end()
        self.wait(*[f"ended{other}" for other in range(self.size)])
        self.die()

    def wait(self, *names):
        while not all((self.folder / name).exists() for name in names):
            self.sleep(0.01)

    def wait_for_all(self, seconds):
        """Wait in place of time.sleep until each other rank has answered or ended."""
        self.asked += 1
        self.end(f"asked{self.asked}-")
        for other in range(self.size):
            answers = f"asked{self.asked}-{other}", f"ended{other}"
            while not any((self.folder / name).exists() for name in answers):
                self.sleep(0.01)

    def fail(self, tensor):
        """In place of all_reduce: fail once, after the sum of a step's losses."""
        self.all_reduce(tensor)
        if self.begun and self.how == "fails" and tensor.numel() == 2:
            self.how = ""
            tensor.fill_(-1)
            raise RuntimeError("as gloo's")

    def trace(self, frame, event, argument):
        """Follow the script's functions, but no others."""
        if not frame.f_code.co_filename.endswith(f"{STAGE}/gpt.py"):
            return None
        if frame.f_code.co_name == "draw_batch" and not self.begun:
            self.begun = frame.f_locals["seed"] == 1 + self.step
            if self.begun and self.how == "moment":
                threading.Timer(self.when / 1000, self.die).start()
        return self.trace_lines

    def trace_lines(self, frame, event, argument):
        if self.begun and event == "line" and frame.f_lineno == self.when:
            if self.how == "dies":
                self.die()
            if self.how == "hangs":
                self.hang()
        return self.trace_lines


def mortal(rank, folder, deaths):
    """Prepare a rank. `deaths` is {rank: (step, how, line or milliseconds)}."""
    one = Mortal(rank, folder, deaths)
    time.sleep = one.wait_for_all
    if one.step:
        sys.settrace(one.trace)
    if one.how == "fails":
        dist.all_reduce = one.fail
    return one.end


def run_with(deaths, ranks, folder, timeout=60):
    """Run the stage with deaths; return its result and which ranks have died."""
    path = folder / STAGE / "gpt.py"
    path.parent.mkdir()
    path.write_text(TEXT.replace("minutes=1", f"seconds={timeout}"))
    words = [*FLAGS, "--out", folder / "out"]
    prepare = mortal, path.parent, deaths
    result = run(STAGE, *words, processes=ranks, path=path, prepare=prepare)
    return result, {int(one.name[4:]) for one in path.parent.glob("died*")}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """Return the rows of one process's metrics.csv."""
    return train("13_gpt", tmp_path_factory.mktemp("one"), *FLAGS)


@pytest.fixture
def survive(right, tmp_path):
    """Return a function that runs with deaths and compares the survivors' curve."""

    def check(deaths, ranks, **options):
        result, died = run_with(deaths, ranks, tmp_path, **options)
        warns = "[W"  # PyTorch does if a rank is missing in a new group
        errors = [one for one in result.stderr.splitlines() if one[:2] != warns]
        assert (result.statuses, errors) == ([0] * ranks, [])
        assert 0 <= off(rows_of(tmp_path / "out"), right) <= 1e-12
        return died

    return check


@pytest.mark.parametrize("ranks", WORLDS)
@pytest.mark.parametrize("moment", [slow(moment) for moment in range(30)])
def test_ranks_die_at_any_moment(moment, ranks, survive):
    deaths = {rank: (step, "moment", moment) for rank, step in WORLDS[ranks].items()}
    assert survive(deaths, ranks) == {0, 1}


@pytest.mark.parametrize("ranks", WORLDS)
@pytest.mark.parametrize("line", [STEP[12], *map(slow, STEP)])
def test_ranks_die_at_any_line_of_a_step(line, ranks, survive):
    """Rank 0, which reports, dies first."""
    deaths = {rank: (step, "dies", line) for rank, step in WORLDS[ranks].items()}
    assert survive(deaths, ranks) >= ({0} if line == HEADER else {0, 1})


@pytest.mark.parametrize("ranks", WORLDS)
@pytest.mark.parametrize("line", [slow(line) for line in AGAIN])
def test_a_rank_dies_while_the_others_form_a_group(line, ranks, survive):
    deaths = {0: (FIRST, "dies", DONE), 1: (FIRST, "dies", line)}
    assert survive(deaths, ranks, timeout=10) >= ({0} if line == CAUGHT_UP else {0, 1})


@pytest.mark.parametrize("behind", [1, slow(2)])
def test_a_survivor_takes_the_step_that_another_has_taken(behind, survive):
    """Rank 0 dies after its last sum, which has not arrived on a second rank."""
    survive({0: (FIRST, "dies", DONE), behind: (FIRST, "fails", 0)}, 3)


@pytest.mark.slow
def test_a_rank_that_hangs_is_lost(survive):
    assert survive({1: (FIRST, "hangs", DONE - 1)}, 3, timeout=10) == {1}


def test_an_error_without_a_death_ends_the_run(tmp_path):
    result, _ = run_with({1: (FIRST, "fails", 0)}, 2, tmp_path)
    assert result.returncode == 1
    assert "RuntimeError: as gloo's" in result.stderr

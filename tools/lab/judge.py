"""Run a learner's script as the check of its exercise asks, and judge it."""

import contextlib
import functools
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tools.lab import checks, recorder
from tools.lab.checks import EPOCHS, TEST, TRAIN
from tools.lab.exercise import stage_text
from tools.lab.run_record import RunRecord
from tools.run import compare, ranks
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES


def judge(exercise, text):
    """Judge the text of a script. Raises Wrong with what is still wrong."""
    runs = Runs(exercise, text)
    check = exercise.load_check().check
    try:
        check(runs)
    except checks.Wrong:
        raise
    except Exception as error:  # a learner cannot help it
        checks.ended(runs())
        what = f"{type(error).__name__}: {error}"
        raise checks.Limit(
            f"The check met something that it does not expect ({what})."
        ) from error


class Runs:
    """What a check gets: it runs the learner's script, and those to compare it with.

    Each method takes flags of the script and what a Setting has. Each returns a
    RunRecord.
    """

    def __init__(self, exercise, text):
        self.stage = exercise.stage
        self.text = text
        self.solution_text = exercise.script("solution")
        self.original_text = stage_text(exercise.stage)

    def __call__(self, *flags, **setting):
        """Run the learner's script."""
        return run_script(self.text, self.stage, *flags, **setting)

    def solution(self, *flags, **setting):
        """Run the solution of the exercise."""
        return run_script(self.solution_text, self.stage, *flags, **setting)

    def original(self, *flags, **setting):
        """Run the script of the stage."""
        return run_script(self.original_text, self.stage, *flags, **setting)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a script is run."""

    processes: int | None = None  # ranks; None: as many as its stage has on a CPU
    train: int = TRAIN  # images
    test: int = TEST  # images
    batch: int | None = None  # images per step, of all ranks together
    epochs: int = EPOCHS
    resume: int = 0  # epochs that a first run trains, before one with --resume
    fake: Callable | None = None  # a function of tools.lab.fake_cuda
    reductions: bool = False  # record the reductions of DDP, too
    float64: bool = True


@functools.cache  # many answers are compared with the same run
def run_script(text, stage, *flags, **setting):
    """Run the text of a script of a stage, and return a RunRecord.

    `flags` are the script's, `setting` is what a Setting has. With `resume`, the record
    is that of the second run, unless the first one fails.
    """
    setting = Setting(**setting)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder).resolve()
        out = folder / "out"
        path = folder / stage / "mnist.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        data = cut(folder / "data", setting.train, setting.test)
        words = [path, "--data", data, "--out", out]
        processes = setting.processes or CPU_PROCESSES.get(stage, 0)
        prepare = (
            recorder.record,
            folder,
            str(path),
            setting.fake,
            setting.reductions,
        )
        result, hangs = run_until_one_fails(
            command_lines(words, flags, setting), processes, setting.float64, prepare
        )
        record = RunRecord(
            events=[read_events(folder / f"rank{n}") for n in range(processes or 1)],
            status=1 if hangs else result.returncode,
            hangs=hangs,
            stdout=result.stdout,
            stderr=result.stderr,
            statuses=result.statuses,
            errors=result.errors,
            places=result.places,
            out=out,
            path=str(path),
            text=text,
            count=setting.epochs - setting.resume,
        )
        read_results(record)
        return record


def command_lines(words, flags, setting):
    """Return the command line of each run as a list of words: two with `resume`."""
    if setting.batch:
        words = [*words, "--batch-size", setting.batch]
    line = [*words, "--epochs", setting.epochs, *flags]
    if not setting.resume:
        return [line]
    first = [*words, "--epochs", setting.resume, *flags]
    return [first, [*line, "--resume"]]


def run_until_one_fails(lines, processes, float64, prepare):
    """Run command lines in turn; return ranks.run's last result, and if it hangs."""
    for words in lines:
        try:
            result = ranks.run(words, processes, float64, checks.LIMIT, prepare)
        except ranks.TimedOut as error:
            return error, True
        if result.returncode:
            break
    return result, False


def read_events(path):
    """Return the events that a rank has written; the last line may be torn."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def read_results(record):
    """Read metrics.csv and model.pth into a record of the run that wrote them."""
    model = record.out / "model.pth"
    rows = read_or_explain(record, record.out / "metrics.csv", compare.read)
    to_cpu = functools.partial(torch.load, map_location="cpu")
    record.rows = rows or []
    record.weights = read_or_explain(record, model, to_cpu)
    if record.weights is not None:
        try:
            torch.load(model)
        except RuntimeError:  # its tensors say that they are on a GPU
            record.needs_gpu = True


def read_or_explain(record, path, read):
    """Return what `read` returns for a file, or None, with the reason in `unread`."""
    if not path.exists():
        return None
    try:
        return read(path)
    except Exception as error:  # noqa: BLE001, whatever a script has written there
        lines = str(error).splitlines()
        record.unread[path.name] = lines[0] if lines else "it is empty"
        return None

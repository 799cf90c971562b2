"""Run a learner's script as the check of its exercise asks, and judge it."""

import contextlib
import functools
import json
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tools.lab import checks, fake_cuda, recorder
from tools.lab.checks import EPOCHS, TEST, TRAIN
from tools.lab.exercise import stage_text
from tools.lab.run_record import RunRecord
from tools.lab.trying import FAKES, without
from tools.run import compare, ranks
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES


def judge(exercise, text):
    """Judge the text of a script.

    Raises Wrong with what is still wrong, the run that showed it, and the command that
    repeats this run.
    """
    runs = Runs(exercise, text)
    try:
        judge_runs(exercise, runs)
    except checks.Wrong as wrong:
        raise type(wrong)(runs.with_latest(str(wrong))) from None


def judge_runs(exercise, runs):
    """Raise Wrong with what is still wrong, and nothing else."""
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
    RunRecord. `latest` is the one of the learner's latest run, or None.
    """

    def __init__(self, exercise, text):
        self.exercise = exercise
        self.stage = exercise.stage
        self.text = text
        self.solution_text = exercise.script("solution")
        self.original_text = stage_text(exercise.stage)
        self.latest = None

    def __call__(self, *flags, **setting):
        """Run the learner's script."""
        self.latest = run_script(self.text, self.stage, *flags, **setting)
        return self.latest

    def solution(self, *flags, **setting):
        """Run the solution of the exercise."""
        return run_script(self.solution_text, self.stage, *flags, **setting)

    def original(self, *flags, **setting):
        """Run the script of the stage."""
        return run_script(self.original_text, self.stage, *flags, **setting)

    def with_latest(self, message):
        """Return a message with the learner's latest run, and how to repeat it."""
        if self.latest is None:
            return message
        folder = f"{self.latest.out.parent}/"  # a temporary one
        run = described(self.latest.setting, self.latest.flags, self.stage)
        command = repeat(self.exercise, self.latest.setting, self.latest.flags)
        return f"{message.replace(folder, '')}\nThat was {run}.\nRepeat it: {command}"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a script is run."""

    processes: int | None = None  # ranks; None: as many as its stage has on a CPU
    train: int = TRAIN  # images
    test: int = TEST  # images
    batch: int | None = None  # images per step, of all ranks together
    epochs: int = EPOCHS
    resume: int = 0  # epochs that a first run trains, before one with --resume
    keep: tuple = ()  # names of files that the second run gets; (): all of the first's
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
        processes = ranks_of(setting, stage)
        prepare = (
            recorder.record,
            folder,
            str(path),
            setting.fake,
            setting.reductions,
        )
        commands = command_lines(words, flags, setting)
        result, hangs = run_until_one_fails(commands, setting, processes, prepare)
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
            setting=setting,
            flags=flags,
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


def ranks_of(setting, stage):
    """Return how many ranks a script has; 0 where torchrun does not start it."""
    return setting.processes or CPU_PROCESSES.get(stage, 0)


def described(setting, flags, stage):
    """Return in words how a script was run."""
    ranks = ranks_of(setting, stage)
    text = "in one process" if ranks < 2 else f"on {ranks} ranks"
    for name in fake_names(setting):
        text += f", with {FAKES[name]}"
    batch = setting.batch or value_of(flags, "--batch-size") or 64
    text += f": {setting.train} training and {setting.test} test images, "
    text += f"{batch} images a step, {setting.epochs} "
    text += "epochs" if setting.epochs > 1 else "epoch"
    if setting.resume:
        text += f", stopped and resumed after {setting.resume}"
    if setting.keep:
        text += f" with {', '.join(setting.keep)} alone"
    return f"{text}, in float64" if setting.float64 else text


def repeat(exercise, setting, flags):
    """Return the `make try` that runs the learner's script in the same way."""
    words = ["make", "try", f"E={exercise.number}"]
    ranks = ranks_of(setting, exercise.stage)
    if ranks:
        words.append(f"NPROC={ranks}")
    words.append(f"IMAGES={setting.train},{setting.test}")
    if setting.resume:
        words.append(f"RESUME={setting.resume}")
    words += [f"FAKE={name}" for name in fake_names(setting)]
    if setting.float64:
        words.append("DOUBLE=1")
    flags = without(flags, "--checkpoint")  # `make try` has one of its own
    if setting.batch:
        flags += ["--batch-size", str(setting.batch)]
    flags += ["--epochs", str(setting.epochs)]
    return " ".join([*words, f'ARGS="{shlex.join(flags)}"'])


def fake_names(setting):
    """Return the name of a setting's function of tools.lab.fake_cuda, in a list."""
    return [name for name in FAKES if getattr(fake_cuda, name) is setting.fake]


def value_of(flags, name):
    """Return what follows a flag among flags, or None."""
    return flags[flags.index(name) + 1] if name in flags else None


def run_until_one_fails(commands, setting, processes, prepare):
    """Run command lines in turn; return ranks.run's last result, and if it hangs."""
    for words in commands:
        try:
            result = ranks.run(words, processes, setting.float64, checks.LIMIT, prepare)
        except ranks.TimedOut as error:
            return error, True
        if result.returncode:
            break
        if setting.keep and words is not commands[-1]:
            out = words[words.index("--out") + 1]
            for path in out.iterdir():
                if path.name not in setting.keep:
                    path.unlink()
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
